"""The SQL of work for external workers: rows are inserted as queued, and change under their task's lock."""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, fields
from functools import cache
from operator import attrgetter
from typing import Final

from agent.store.db.database import Connection
from agent.store.db.dialect import ColumnType, Sql
from agent.store.db.json_values import set_of
from agent.store.engine.reads import Statement

TYPES: Final[Mapping[str, ColumnType]] = {
    "id": "text",
    "task_id": "text",
    "step_id": "text",
    "step_index": "int",
    "parallel_index": "int",
    "attempt": "int",
    "queue": "text",
    "priority": "int",
    "status": "text",
    "input": "text",
    "intent": "text",
    "call_id": "text",
    "lease_us": "int",
    "start_within_us": "int",
    "timeout_us": "int",
    "lease_id": "text",
    "leased_by": "text",
    "lease_expires_at": "int",
    "leased_at": "int",
    "start_by": "int",
    "started_at": "int",
    "run_by": "int",
    "client_token": "text",
    "last_lease_id": "text",
    "approval_id": "text",
    "answer": "text",
    "reason": "text",
    "created_at": "int",
    "ended_at": "int",
}

_FIXED: Final = ("id", "task_id", "step_id", "step_index", "parallel_index", "attempt", "queue")
_FIXED_TOO: Final = ("priority", "input", "intent", "start_within_us", "timeout_us", "created_at")
_CHANGING: Final = tuple(name for name in TYPES if name not in (*_FIXED, *_FIXED_TOO))


@dataclass(slots=True)
class WorkRow:
    """One row, as it is stored: JSON values are text."""

    id: str
    task_id: str
    step_id: str
    step_index: int
    parallel_index: int
    attempt: int
    queue: str
    priority: int
    status: str
    input: str
    intent: str | None
    call_id: str | None
    lease_us: int
    start_within_us: int
    timeout_us: int | None
    lease_id: str | None = None
    leased_by: str | None = None
    lease_expires_at: int | None = None
    leased_at: int | None = None
    start_by: int | None = None
    started_at: int | None = None
    run_by: int | None = None
    client_token: str | None = None
    last_lease_id: str | None = None
    approval_id: str | None = None
    answer: str | None = None
    reason: str | None = None
    created_at: int = 0
    ended_at: int | None = None


COLUMNS: Final = tuple(field.name for field in fields(WorkRow))
_VALUES: Final = attrgetter(*COLUMNS)
_CHANGED_VALUES: Final = attrgetter("id", *_CHANGING)
_SELECTED: Final = ", ".join(f"w.{name}" for name in COLUMNS)


@cache
def _insert(sql: Sql) -> str:
    names = ", ".join(COLUMNS)
    return f"INSERT INTO work ({names}) SELECT {names} FROM {sql.rows(**TYPES)}"


def insert(tx: Connection, rows: Iterable[WorkRow]) -> None:
    """Insert rows."""
    tx.defer(_insert(tx.sql), rows=set_of([_VALUES(row) for row in rows]))


@cache
def _update(sql: Sql) -> str:
    types: dict[str, ColumnType] = {"id": "text", **{name: TYPES[name] for name in _CHANGING}}
    assigned = ", ".join(f"{name} = r.{name}" for name in _CHANGING)
    return f"UPDATE work SET {assigned} FROM {sql.rows(**types)} WHERE work.id = r.id"


def update(tx: Connection, rows: Iterable[WorkRow]) -> None:
    """Write the changeable columns of rows that were read under their task's lock."""
    tx.defer(_update(tx.sql), rows=set_of([_CHANGED_VALUES(row) for row in rows]))


def withdraw(tx: Connection, work_ids: Collection[str], now: int) -> None:
    """End work that no step waits on any more, and its lease; ended work stays unchanged."""
    tx.defer(
        "UPDATE work SET status = 'withdrawn', last_lease_id = coalesce(lease_id, last_lease_id),"
        " lease_id = NULL, leased_by = NULL, lease_expires_at = NULL, start_by = NULL,"
        " run_by = NULL, approval_id = NULL, ended_at = :now"
        f" WHERE id IN {tx.sql.ids()} AND status IN ('queued', 'leased', 'running', 'asked')",
        ids=set_of(sorted(work_ids)),
        now=now,
    )


@cache
def _by_id(sql: Sql) -> str:
    return f"SELECT {_SELECTED} FROM work AS w WHERE w.id IN {sql.ids()}"


def find_statement(sql: Sql, work_ids: Iterable[str]) -> Statement:
    """Return the statement that selects rows by their ids."""
    return _by_id(sql), {"ids": set_of(sorted(work_ids))}


def leased(step: str) -> str:
    """Return the SQL condition that an external worker has a step: only a lease gives work a wake time."""
    return (
        f"{step}.wake_at IS NOT NULL AND {step}.status = 'waiting'"
        f""" AND {step}.waiting_on LIKE '{{"work":%' AND {step}.waiting_on NOT LIKE '%"approval":%'"""
    )


def has_leased_steps(tx: Connection, task_id: str, known: Iterable[str]) -> bool:
    """Whether external workers have steps of a task besides those that are known."""
    rows = tx.query(
        f"SELECT 1 FROM steps AS s WHERE s.task_id = :id AND {leased('s')}"
        f" AND s.id NOT IN {tx.sql.ids()} LIMIT 1",
        id=task_id,
        ids=json.dumps(list(known)),
    )
    return bool(rows)


def find(connection: Connection, work_ids: Iterable[str]) -> dict[str, WorkRow]:
    """Return rows by their ids."""
    sql, params = find_statement(connection.sql, work_ids)
    return {row[0]: WorkRow(*row) for row in connection.query(sql, **params)}


@cache
def _claimable(sql: Sql) -> str:
    return (
        f"SELECT {_SELECTED}, s.checkpoint,"
        " (SELECT max(c.id) FROM context_snapshots AS c WHERE c.task_id = w.task_id)"
        f" FROM work AS w JOIN steps AS s ON s.id = w.step_id WHERE w.id IN {sql.ids()}"
    )


def claimable_statement(sql: Sql, work_ids: Iterable[str]) -> Statement:
    """Return the statement that selects rows with the further facts of their claims.

    That is the checkpoint of the step, and the id of the newest snapshot of the task.
    """
    return _claimable(sql), {"ids": set_of(sorted(work_ids))}


_CANDIDATES: Final = """
    SELECT w.id, w.task_id, w.step_index, w.parallel_index, w.queue, w.priority
    FROM work AS w JOIN tasks AS t ON t.id = w.task_id
    WHERE w.status = 'queued' AND w.queue = {} AND t.status = 'running'
    ORDER BY w.priority, w.id LIMIT :most"""


@cache
def _candidates(sql: Sql) -> str:
    """Select the first queued work of each queue, without locks: the order is that of an index."""
    if sql.name == "sqlite":
        return _CANDIDATES.format(":queue")
    return (
        f"SELECT c.* FROM {sql.rows(queue='text')} CROSS JOIN LATERAL"
        f" ({_CANDIDATES.format('r.queue')}) AS c"
    )


def candidate_statements(sql: Sql, queues: Iterable[str], most: int) -> list[Statement]:
    """Return the statement that selects the first work of queues.

    The columns are id, task id, step index, parallel index, queue and priority.
    """
    names, statement = sorted(set(queues)), _candidates(sql)
    if sql.name == "sqlite":
        return [(statement, {"queue": queue, "most": most}) for queue in names]
    if not names:
        return []
    return [(statement, {"rows": set_of([[queue] for queue in names]), "most": most})]


@cache
def _by_client_token(sql: Sql) -> str:
    return (
        "SELECT client_token, status, id, task_id, step_index, parallel_index, queue, priority"
        f" FROM work WHERE client_token IN {sql.ids()} ORDER BY id"
    )


def token_statement(sql: Sql, tokens: Iterable[str]) -> Statement:
    """Return the statement that selects the work claimed under tokens.

    The columns are token and status, and those of `candidate_statements`.
    """
    return _by_client_token(sql), {"ids": set_of(sorted(set(tokens)))}
