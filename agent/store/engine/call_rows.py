"""The SQL of calls: `tool_calls` holds requests and results, `idempotency_outcomes` the verdicts.

A call and its verdict `unknown` are inserted together, before the effect begins. The first verdict
after that is final.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final

from agent.store.db.database import Connection
from agent.store.db.dialect import ColumnType, Sql
from agent.store.db.json_values import set_of
from agent.store.engine.reads import Rows
from agent.store.engine.writes import insert_rows, update_statement

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
"""Further columns of a call of a model."""

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


def insert_calls(tx: Connection, rows: Sequence[Sequence[Any]], status: str = "unknown") -> None:
    """Insert calls (in the order of `CALL_TYPES`) with their verdict, normally `unknown`.

    Calls of models also have the columns of `MODEL_TYPES`.
    """
    plain = [row for row in rows if len(row) == len(CALL_TYPES)]
    if plain:
        insert_rows(tx, "tool_calls", CALL_TYPES, plain)
    if len(plain) < len(rows):
        of_models = [row for row in rows if len(row) > len(CALL_TYPES)]
        insert_rows(tx, "tool_calls", {**CALL_TYPES, **MODEL_TYPES}, of_models)
    outcomes = [[row[6], row[0], status, None, None] for row in rows]
    insert_rows(tx, "idempotency_outcomes", _OUTCOME_TYPES, outcomes)


def record_spend(tx: Connection, rows: Iterable[Sequence[Any]]) -> None:
    """Write the use of calls of models: (id, tokens in, out, cost, request id, stop reason)."""
    tx.defer(update_statement(tx.sql, "tool_calls", tuple(_SPEND_TYPES.items())), rows=set_of(rows))


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
    """Record the verdicts on calls; return the keys that were unknown until now.

    `outcomes` holds (key, status, response hash, at), `calls` by key (call id, response, error,
    latency). A verdict that exists stays: the first one counts.
    """
    resolved = {str(row[0]) for row in tx.query(_resolve_outcomes(tx.sql), rows=set_of(outcomes))}
    results = [calls[key] for key in resolved]
    if results:
        tx.defer(_resolve_calls(tx.sql), rows=set_of(results))
    return resolved


@cache
def _expire_calls(sql: Sql) -> str:
    return (
        f"UPDATE tool_calls SET expires_at = :now FROM {sql.rows(id='text')}"
        " WHERE tool_calls.step_id = r.id AND tool_calls.expires_at > :now"
        " AND tool_calls.on_unknown <> 'reconcile'"
    )


def expire_calls(tx: Connection, step_ids: Sequence[str], now: int) -> None:
    """Record that no process on this machine still works for these steps.

    A person can then be asked at once. Calls with `reconcile` keep their time: a remote may still work
    on a request, and asked too early it would answer that it did not happen.
    """
    tx.defer(_expire_calls(tx.sql), rows=set_of([[id_] for id_ in step_ids]), now=now)


def begin_now(tx: Connection, task_id: str, after: int, now: int) -> None:
    """Move the calls of a task that were recorded later than an instant back to now, with their times."""
    tx.execute(
        "UPDATE tool_calls SET send_by = send_by - (created_at - :now),"
        " expires_at = expires_at - (created_at - :now), created_at = :now"
        " WHERE task_id = :task_id AND created_at > :after",
        task_id=task_id,
        after=after,
        now=now,
    )


@cache
def _extend_calls(sql: Sql) -> str:
    return (
        f"UPDATE tool_calls SET expires_at = r.until FROM {sql.rows(id='text', attempt='int', until='int')}"
        " WHERE tool_calls.step_id = r.id AND tool_calls.attempt = r.attempt"
        " AND tool_calls.expires_at - tool_calls.send_by = :own AND tool_calls.expires_at < r.until"
    )


def extend_calls(tx: Connection, ends: Sequence[Sequence[object]], own_us: int) -> None:
    """Extend the time of (step, attempt, until) for the calls that have this default as their own."""
    tx.defer(_extend_calls(tx.sql), rows=set_of(ends), own=own_us)


def find_call(tx: Connection, call_id: str) -> tuple[str, str | None, str, int] | None:
    """Return (action, request, idempotency key, created_at) of a call."""
    rows = tx.query(
        "SELECT action, request, idempotency_key, created_at FROM tool_calls WHERE id = :id",
        id=call_id,
    )
    return rows[0] if rows else None


def is_call_resolved(tx: Connection, call_id: str) -> bool:
    """Whether a call has a verdict."""
    rows = tx.query(
        "SELECT 1 FROM idempotency_outcomes WHERE tool_call_id = :id AND status <> 'unknown'",
        id=call_id,
    )
    return bool(rows)


@cache
def _unresolved_calls(sql: Sql) -> str:
    return (
        "SELECT c.step_id, c.id, c.number, c.action, c.attempt, c.idempotency_key, c.on_unknown"
        f" FROM {sql.rows(id='text')}"
        " JOIN tool_calls AS c ON c.step_id = r.id"
        " JOIN idempotency_outcomes AS o ON o.idempotency_key = c.idempotency_key"
        " WHERE o.status = 'unknown' ORDER BY c.step_id, c.number, c.attempt"
    )


def unresolved_calls(tx: Connection, step_ids: Sequence[str]) -> Rows:
    """Return (step id, call id, number, action, attempt, key, policy) of calls without a verdict."""
    return tx.query(_unresolved_calls(tx.sql), rows=set_of([[id_] for id_ in step_ids]))


@cache
def _results(sql: Sql) -> str:
    return (
        f"SELECT r.key, o.status, c.response, c.error FROM {sql.rows(key='text')}"
        " JOIN idempotency_outcomes AS o ON o.idempotency_key = r.key"
        " JOIN tool_calls AS c ON c.id = o.tool_call_id WHERE o.status <> 'unknown'"
    )


def recorded_results(
    tx: Connection, keys: Sequence[str]
) -> dict[str, tuple[str, str | None, str | None]]:
    """Return (status, response, error) by key, for keys with a verdict."""
    rows = tx.query(_results(tx.sql), rows=set_of([[key] for key in keys]))
    return {str(key): (str(status), response, error) for key, status, response, error in rows}


@cache
def _calls(sql: Sql) -> str:
    return (
        "SELECT c.step_id, c.id, c.number, c.attempt, c.action, c.idempotency_key, c.remote_key,"
        " c.request_hash, o.status, c.response, c.error, c.on_unknown, c.expires_at FROM "
        f"{sql.rows(id='text')} JOIN tool_calls AS c ON c.step_id = r.id"
        " JOIN idempotency_outcomes AS o ON o.idempotency_key = c.idempotency_key"
        " ORDER BY c.step_id, c.number, c.attempt, c.created_at, c.id"
    )


def recorded_calls(connection: Connection, step_ids: Sequence[str]) -> Rows:
    """Return the recorded calls of steps, in the order in which they were made."""
    return connection.query(_calls(connection.sql), rows=set_of([[id_] for id_ in step_ids]))
