"""What the engine writes: one statement a table and shape, whatever the number of rows.

No guard stands in these statements: they run under the locks of the tasks whose rows were read, and
the rules have been applied in memory. Nobody waits for their results, so on PostgreSQL they travel
together with what comes next.
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
}

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

CALL_TYPES: Final[Mapping[str, ColumnType]] = {
    "id": "text",
    "task_id": "text",
    "step_id": "text",
    "number": "int",
    "attempt": "int",
    "action": "text",
    "idempotency_key": "text",
    "remote_key": "text",
    "request_hash": "text",
    "request": "text",
    "response": "text",
    "error": "text",
    "on_unknown": "text",
    "send_by": "int",
    "expires_at": "int",
    "created_at": "int",
}

MODEL_TYPES: Final[Mapping[str, ColumnType]] = {
    "model": "text",
    "prompt_hash": "text",
    "reserved_tokens": "int",
    "reserved_microusd": "int",
    "reserved_ms": "int",
}
"""What the intent of a call of a model has besides."""

_SPEND_TYPES: Final[Mapping[str, ColumnType]] = {
    "id": "text",
    "tokens_in": "int",
    "tokens_out": "int",
    "cost_microusd": "int",
    "request_id": "text",
    "stop_reason": "text",
}

_OUTCOME_TYPES: Final[Mapping[str, ColumnType]] = {
    "idempotency_key": "text",
    "tool_call_id": "text",
    "status": "text",
    "response_hash": "text",
    "resolved_at": "int",
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


def _insert_rows(
    tx: Connection,
    table: str,
    types: Mapping[str, ColumnType],
    rows: Iterable[Sequence[Any]],
    ending: str = "",
) -> None:
    tx.defer(_insert(tx.sql, table, tuple(types.items()), ending), rows=set_of(rows))


@cache
def _update(sql: Sql, table: str, columns: tuple[tuple[str, ColumnType], ...]) -> str:
    assignments = ", ".join(f'"{name}" = r."{name}"' for name, _ in columns if name != "id")
    rows = sql.rows(**dict(columns))
    return f"UPDATE {table} SET {assignments} FROM {rows} WHERE {table}.id = r.id"


Changes = tuple[tuple[str, ...], list[Any]]
"""The columns of a row that changed, and what to."""


def update_steps(tx: Connection, changed: Iterable[tuple[str, Changes]]) -> None:
    """Write the changed columns of steps, given as (id, changes)."""
    _update_rows(tx, "steps", STEP_TYPES, changed)


def _update_rows(
    tx: Connection,
    table: str,
    types: Mapping[str, ColumnType],
    changed: Iterable[tuple[str, Changes]],
) -> None:
    """Update rows by their ids: one statement for each set of columns that changed."""
    shapes: defaultdict[tuple[str, ...], list[list[Any]]] = defaultdict(list)
    for row_id, (names, values) in changed:
        shapes[names].append([row_id, *values])
    for names, rows in shapes.items():
        columns = (("id", types["id"]), *((name, types[name]) for name in names))
        tx.defer(_update(tx.sql, table, columns), rows=set_of(rows))


@cache
def _next_wake(sql: Sql) -> str:
    # Never in the past: a task that was served goes behind those that wait.
    first = (
        f"(SELECT {sql.greatest}(s.wake_at, r.now) FROM steps AS s WHERE s.task_id = tasks.id"
        " AND s.wake_at IS NOT NULL ORDER BY s.wake_at LIMIT 1)"
    )
    soonest = f"{sql.least}(coalesce({first}, {_NEVER}), coalesce(r.until, {_NEVER}))"
    return f"next_wake_time = nullif({soonest}, {_NEVER})"


def update_whole_tasks(tx: Connection, changed: Iterable[tuple[str, Changes]]) -> None:
    """Write the changed columns of tasks whose next wake times are among them, if they changed."""
    _update_rows(tx, "tasks", TASK_TYPES, changed)


def update_tasks(
    tx: Connection, now: int, changed: Iterable[tuple[str, int | None, Changes]]
) -> None:
    """Write the changed columns of tasks, given as (id, deadline, changes), and when to look next.

    It comes after the steps: the next wake time is the first of theirs, or the deadline.
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
    """Insert tasks by the columns named; the others are null."""
    _insert_rows(tx, "tasks", {name: TASK_TYPES[name] for name in names}, rows)


@cache
def _insert_steps(sql: Sql, names: tuple[str, ...]) -> str:
    picked = ", ".join(
        f'r."{name}"' if name in names else _STEP_DEFAULTS.get(name, "NULL") for name in STEP_TYPES
    )
    columns = ", ".join(f'"{name}"' for name in STEP_TYPES)
    rows = sql.rows(**{name: STEP_TYPES[name] for name in names})
    return f"INSERT INTO steps ({columns}) SELECT {picked} FROM {rows}"


def insert_steps(tx: Connection, rows: Iterable[Sequence[Any]], names: tuple[str, ...]) -> None:
    """Insert steps by the columns named; the others are as for any new step."""
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
    _insert_rows(tx, "step_logs", _LOG_TYPES, rows)


def insert_calls(tx: Connection, rows: Sequence[Sequence[Any]], status: str = "unknown") -> None:
    """Record calls (in the order of `CALL_TYPES`), and that nothing is known of them yet.

    Calls of models are longer by `MODEL_TYPES`.
    """
    plain = [row for row in rows if len(row) == len(CALL_TYPES)]
    if plain:
        _insert_rows(tx, "tool_calls", CALL_TYPES, plain)
    if len(plain) < len(rows):
        of_models = [row for row in rows if len(row) > len(CALL_TYPES)]
        _insert_rows(tx, "tool_calls", {**CALL_TYPES, **MODEL_TYPES}, of_models)
    outcomes = [[row[6], row[0], status, None, None] for row in rows]
    _insert_rows(tx, "idempotency_outcomes", _OUTCOME_TYPES, outcomes)


def record_spend(tx: Connection, rows: Iterable[Sequence[Any]]) -> None:
    """Write what calls of models used: (id, tokens in, out, cost, request id, stop reason)."""
    tx.defer(_update(tx.sql, "tool_calls", tuple(_SPEND_TYPES.items())), rows=set_of(rows))


@cache
def _resolve_outcomes(sql: Sql) -> str:
    rows = sql.rows(key="text", status="text", response_hash="text", at="int")
    return (
        "UPDATE idempotency_outcomes SET status = r.status, response_hash = r.response_hash,"
        f" resolved_at = r.at FROM {rows} WHERE idempotency_outcomes.idempotency_key = r.key"
        " AND idempotency_outcomes.status = 'unknown' RETURNING idempotency_key"
    )


@cache
def _resolve_calls(sql: Sql) -> str:
    rows = sql.rows(id="text", response="text", error="text", latency_ms="int")
    return (
        "UPDATE tool_calls SET response = r.response, error = r.error,"
        f" latency_ms = r.latency_ms FROM {rows} WHERE tool_calls.id = r.id"
    )


def resolve_calls(
    tx: Connection, outcomes: Sequence[Sequence[Any]], calls: Mapping[str, Sequence[Any]]
) -> set[str]:
    """Say what became of calls; return the keys that were unknown until now.

    `outcomes` holds (key, status, response hash, at), `calls` by key (call id, response, error,
    latency). What is resolved already stays as it is: the first word counts.
    """
    resolved = {str(row[0]) for row in tx.query(_resolve_outcomes(tx.sql), rows=set_of(outcomes))}
    told = [calls[key] for key in resolved]
    if told:
        tx.defer(_resolve_calls(tx.sql), rows=set_of(told))
    return resolved
