"""The writes of the engine: one statement per table and set of columns, for any number of rows.

The statements have no guards: they run under the locks of the tasks whose rows were read, and the
rules were applied in memory. Their results are not needed, so PostgreSQL gets them with the next
statement.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final

from agent.store.db.database import Connection
from agent.store.db.dialect import ColumnType, Sql
from agent.store.db.json_values import set_of

_NEVER: Final = 2**62

STEP_TYPES: Final[Mapping[str, ColumnType]] = {
    "id": "text",
    "task_id": "text",
    "index": "int",
    "parallel_index": "int",
    "name": "text",
    "kind": "text",
    "status": "text",
    "attempt": "int",
    "max_attempts": "int",
    "deps_remaining": "int",
    "deps_failed": "int",
    "wake_at": "int",
    "held": "int",
    "placed": "int",
    "alone": "int",
    "owner": "text",
    "claim_token": "int",
    "claim_turn": "int",
    "failures": "int",
    "waiting_on": "text",
    "checkpoint": "text",
    "output": "text",
    "error": "text",
    "skip_reason": "text",
    "idempotency_key": "text",
    "item": "text",
    "items": "text",
    "parallel_count": "int",
    "items_done": "int",
    "items_placed": "int",
    "items_ended": "int",
    "items_failed": "int",
    "process_id": "int",
    "process_started": "text",
    "started_at": "int",
    "ended_at": "int",
    "state_read": "text",
    "first_claimed_at": "int",
}

_SELDOM: Final = frozenset({"state_read", "first_claimed_at"})
"""Columns that are only written where there is a value."""

_STEP_DEFAULTS: Final[Mapping[str, str]] = {
    "parallel_index": "-1",
    "attempt": "1",
    **dict.fromkeys(
        ("deps_failed", "alone", "failures", "items_done", "items_placed", "items_ended"), "0"
    ),
    "items_failed": "0",
}

TASK_TYPES: Final[Mapping[str, ColumnType]] = {
    "id": "text",
    "status": "text",
    "workflow_name": "text",
    "workflow_version": "int",
    "priority": "int",
    "input": "text",
    "output": "text",
    "error": "text",
    "next_wake_time": "int",
    "deadline": "int",
    "steps_open": "int",
    "steps_running": "int",
    "steps_failed": "int",
    "steps_held": "int",
    "places_taken": "int",
    "phase": "text",
    "event_seq": "int",
    "trigger": "text",
    "dedupe_key": "text",
    "parent_task_id": "text",
    "parent_step_id": "text",
    "depth": "int",
    "origin_id": "text",
    "retry_of": "text",
    "forked_from": "text",
    "pause_reason": "text",
    "created_at": "int",
    "started_at": "int",
    "ended_at": "int",
    "pause_kind": "text",
    "pause_command": "text",
    "trigger_id": "text",
    "conversation": "text",
    "chat_origin": "text",
}

_EVENT_TYPES: Final[Mapping[str, ColumnType]] = {
    "task_id": "text",
    "seq": "int",
    "type": "text",
    "step_id": "text",
    "attempt": "int",
    "at": "int",
    "data": "text",
}

_LOG_TYPES: Final[Mapping[str, ColumnType]] = {
    "task_id": "text",
    "step_id": "text",
    "attempt": "int",
    "at": "int",
    "stream": "text",
    "text": "text",
}


@cache
def _insert(sql: Sql, table: str, columns: tuple[tuple[str, ColumnType], ...], ending: str) -> str:
    names = ", ".join(f'"{name}"' for name, _ in columns)
    picked = ", ".join(f'r."{name}"' for name, _ in columns)
    # WHERE true: without it SQLite reads ON as a join's condition.
    return (
        f"INSERT INTO {table} ({names}) SELECT {picked} FROM {sql.rows(**dict(columns))}"
        f" WHERE true {ending}"
    )


def insert_rows(
    tx: Connection,
    table: str,
    types: Mapping[str, ColumnType],
    rows: Iterable[Sequence[Any]],
    ending: str = "",
) -> None:
    """Insert rows, each as its values in the order of `types`."""
    tx.defer(_insert(tx.sql, table, tuple(types.items()), ending), rows=set_of(rows))


@cache
def update_statement(sql: Sql, table: str, columns: tuple[tuple[str, ColumnType], ...]) -> str:
    """Return the UPDATE of rows by their ids."""
    assignments = ", ".join(f'"{name}" = r."{name}"' for name, _ in columns if name != "id")
    rows = sql.rows(**dict(columns))
    return f"UPDATE {table} SET {assignments} FROM {rows} WHERE {table}.id = r.id"


Changes = tuple[tuple[str, ...], list[Any]]
"""The changed columns of a row, and their new values."""


def update_steps(tx: Connection, changed: Iterable[tuple[str, Changes]]) -> None:
    """Write the changed columns of steps, given as (id, changes)."""
    _update_rows(tx, "steps", changed)


def _update_rows(tx: Connection, table: str, changed: Iterable[tuple[str, Changes]]) -> None:
    """Update rows by their ids: one statement for each set of columns that changed."""
    shapes: defaultdict[tuple[str, ...], list[list[Any]]] = defaultdict(list)
    for row_id, (names, values) in changed:
        shapes[names].append([row_id, *values])
    for names, rows in shapes.items():
        tx.defer(_update_columns(tx.sql, table, names), rows=set_of(rows))


@cache
def _update_columns(sql: Sql, table: str, names: tuple[str, ...]) -> str:
    types = STEP_TYPES if table == "steps" else TASK_TYPES
    return update_statement(sql, table, tuple((name, types[name]) for name in ("id", *names)))


@cache
def _next_wake(sql: Sql) -> str:
    # Never in the past: a task that was just served queues behind those that wait.
    first = (
        f"(SELECT {sql.greatest}(s.wake_at, r.now) FROM steps AS s WHERE s.task_id = tasks.id"
        " AND s.wake_at IS NOT NULL ORDER BY s.wake_at LIMIT 1)"
    )
    soonest = f"{sql.least}(coalesce({first}, {_NEVER}), coalesce(r.until, {_NEVER}))"
    return f"next_wake_time = nullif({soonest}, {_NEVER})"


def update_whole_tasks(tx: Connection, changed: Iterable[tuple[str, Changes]]) -> None:
    """Write the changed columns of tasks, next wake time included."""
    _update_rows(tx, "tasks", changed)


def update_tasks(
    tx: Connection, now: int, changed: Iterable[tuple[str, int | None, Changes]]
) -> None:
    """Write the changed columns of tasks, given as (id, deadline, changes), and derive the next wake time.

    Call it after the steps are written: it is the first of their wake times, or the deadline.
    """
    shapes: defaultdict[tuple[str, ...], list[list[Any]]] = defaultdict(list)
    for task_id, deadline, (names, values) in changed:
        shapes[names].append([task_id, now, deadline, *values])
    for names, rows in shapes.items():
        tx.defer(_update_tasks(tx.sql, names), rows=set_of(rows))


@cache
def _update_tasks(sql: Sql, names: tuple[str, ...]) -> str:
    columns: dict[str, ColumnType] = {"id": "text", "now": "int", "until": "int"}
    columns.update({name: TASK_TYPES[name] for name in names})
    assignments = [f'"{name}" = r."{name}"' for name in names]
    assignments.append(_next_wake(sql))
    return (
        f"UPDATE tasks SET {', '.join(assignments)} FROM {sql.rows(**columns)}"
        " WHERE tasks.id = r.id"
    )


def insert_tasks(tx: Connection, rows: Iterable[Sequence[Any]], names: tuple[str, ...]) -> None:
    """Insert tasks with these columns; the others are null."""
    insert_rows(tx, "tasks", {name: TASK_TYPES[name] for name in names}, rows)


@cache
def _insert_steps(sql: Sql, names: tuple[str, ...]) -> str:
    written = [name for name in STEP_TYPES if name in names or name not in _SELDOM]
    picked = ", ".join(
        f'r."{name}"' if name in names else _STEP_DEFAULTS.get(name, "NULL") for name in written
    )
    columns = ", ".join(f'"{name}"' for name in written)
    rows = sql.rows(**{name: STEP_TYPES[name] for name in names})
    return f"INSERT INTO steps ({columns}) SELECT {picked} FROM {rows}"


def insert_steps(tx: Connection, rows: Iterable[Sequence[Any]], names: tuple[str, ...]) -> None:
    """Insert steps with these columns; the others have the defaults of a new step."""
    tx.defer(_insert_steps(tx.sql, names), rows=set_of(rows))


@cache
def _insert_events(sql: Sql) -> str:
    names = ", ".join(_EVENT_TYPES)
    picked = ", ".join(f"r.{name}" for name in _EVENT_TYPES)
    return f"INSERT INTO events (xid, {names}) SELECT {sql.xid}, {picked} FROM " + sql.rows(
        **_EVENT_TYPES
    )


def insert_events(tx: Connection, rows: Iterable[Sequence[Any]]) -> None:
    """Append events: (task id, number, type, step id, attempt, at, data)."""
    tx.defer(_insert_events(tx.sql), rows=set_of(rows))


def insert_logs(tx: Connection, rows: Iterable[Sequence[Any]]) -> None:
    """Append pieces of steps' logs: (task id, step id, attempt, at, stream, text)."""
    insert_rows(tx, "step_logs", _LOG_TYPES, rows)
