"""Rows for tests that only care for a few of their columns."""

from typing import Any

from sqlalchemy import Text
from sqlmodel import SQLModel

from agent.store.db.database import Connection
from agent.store.schema import tables as _tables  # noqa: F401 - declares what is inserted


def insert(connection: Connection, table: str, **given: Any) -> None:
    """Insert a row; what is not given is null, or empty where it may not be."""
    values: dict[str, Any] = {}
    for column in SQLModel.metadata.tables[table].columns:
        if column.name in given:
            values[column.name] = given[column.name]
        elif not column.nullable and column.autoincrement is not True and not _is_serial(column):
            values[column.name] = "" if isinstance(column.type, Text) else 0
    names = ", ".join(f'"{name}"' for name in values)
    bound = ", ".join(f":{name}" for name in values)
    connection.execute(f"INSERT INTO {table} ({names}) VALUES ({bound})", **values)


def _is_serial(column: Any) -> bool:
    return bool(column.primary_key and column.name == "id" and not isinstance(column.type, Text))


def insert_task(
    connection: Connection, task_id: str, *, status: str = "succeeded", **given: Any
) -> None:
    """Insert a task with one step, one call on the ledger, one event and one piece of a log."""
    if status in ("succeeded", "failed", "canceled"):
        given.setdefault("ended_at", 100)
    insert(
        connection,
        "tasks",
        id=task_id,
        status=status,
        **{"origin_id": task_id, "priority": 1, "input": "{}", "event_seq": 1, **given},
    )
    step = f"{task_id}-step"
    insert(connection, "steps", id=step, task_id=task_id, parallel_index=-1, status="succeeded")
    insert(connection, "tool_calls", id=f"{task_id}-call", task_id=task_id, step_id=step)
    insert(
        connection,
        "idempotency_outcomes",
        idempotency_key=f"{task_id}-key",
        tool_call_id=f"{task_id}-call",
        status="succeeded",
    )
    insert(connection, "events", task_id=task_id, seq=1, type="task.created", at=1)
    insert(connection, "step_logs", task_id=task_id, step_id=step, at=1, text="line")
    insert(connection, "signals", id=f"{task_id}-signal", task_id=task_id, name="go")
