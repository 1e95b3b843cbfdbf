"""One step for people: its row, its events, its items and the log of its attempts."""

from typing import Any, Final

from agent.store.db.database import Connection
from agent.store.engine.writes import STEP_TYPES
from agent.store.read.views import Found

CONFIG_STREAM: Final = "config"
"""Pieces of logs that hold the rendered configuration of an attempt (`steps.attempt.config_record`)."""

_NAMES: Final = tuple(
    name for name in STEP_TYPES if name not in ("items", "state_read", "first_claimed_at")
)
_SELECTED: Final = ", ".join(f'"{name}"' for name in _NAMES)


def step_by_name(connection: Connection, task_id: str, step: str) -> Found | None:
    """Return the row of a step by its name, or of an item by its number too (`lines[3]`)."""
    name, _, number = step.rstrip("]").partition("[")
    return _one(
        connection,
        "task_id = :id AND name = :name AND parallel_index = :number",
        id=task_id,
        name=name,
        number=int(number) if number.isdigit() and len(number) < 10 else -1,
    )


def step_by_id(connection: Connection, step_id: str) -> Found | None:
    """Return the row of a step; None if it was pruned."""
    return _one(connection, "id = :id", id=step_id)


def _one(connection: Connection, condition: str, **params: Any) -> Found | None:
    rows = connection.query(f"SELECT {_SELECTED} FROM steps WHERE {condition}", **params)
    return dict(zip(_NAMES, rows[0], strict=True)) if rows else None


def step_events(connection: Connection, task_id: str, step_id: str) -> list[Found]:
    """Return (type, attempt, at, data) of a step's events in their order."""
    rows = connection.query(
        "SELECT type, attempt, at, data FROM events WHERE task_id = :task_id AND step_id = :step_id"
        " ORDER BY seq",
        task_id=task_id,
        step_id=step_id,
    )
    return [dict(zip(("type", "attempt", "at", "data"), row, strict=True)) for row in rows]


def step_children(connection: Connection, step_id: str, limit: int) -> list[Found]:
    """Return the child tasks that a step has started, the oldest first."""
    rows = connection.query(
        "SELECT id, workflow_name, status FROM tasks WHERE parent_step_id = :step_id"
        " ORDER BY id LIMIT :limit",
        step_id=step_id,
        limit=limit,
    )
    return [dict(zip(("task", "workflow", "status"), row, strict=True)) for row in rows]


def step_log(connection: Connection, task_id: str, step_id: str, limit: int) -> list[Found]:
    """Return the last pieces of a step's log, the oldest first."""
    return _pieces(connection, task_id, step_id, "<>", limit)


def step_configs(connection: Connection, task_id: str, step_id: str, limit: int) -> list[Found]:
    """Return the recorded configurations of a step's last attempts, the oldest first."""
    return _pieces(connection, task_id, step_id, "=", limit)


def _pieces(
    connection: Connection, task_id: str, step_id: str, compared: str, limit: int
) -> list[Found]:
    rows = connection.query(
        "SELECT attempt, at, stream, text FROM step_logs WHERE task_id = :task_id"
        f" AND step_id = :step_id AND stream {compared} '{CONFIG_STREAM}'"
        " ORDER BY id DESC LIMIT :limit",
        task_id=task_id,
        step_id=step_id,
        limit=limit,
    )
    names = ("attempt", "at", "stream", "text")
    return [dict(zip(names, row, strict=True)) for row in reversed(rows)]


def items(connection: Connection, task_id: str, index: int, limit: int) -> list[Found]:
    """Return (number, status, attempt, item, error) of the items of a group, failed ones first."""
    names = ("parallel_index", "status", "attempt", "item", "error")
    rows = connection.query(
        f'SELECT {", ".join(names)} FROM steps WHERE task_id = :task_id AND "index" = :index'
        " AND parallel_index >= 0 ORDER BY CASE status WHEN 'failed' THEN 0"
        " WHEN 'succeeded' THEN 2 ELSE 1 END, parallel_index LIMIT :limit",
        task_id=task_id,
        index=index,
        limit=limit,
    )
    return [dict(zip(names, row, strict=True)) for row in rows]
