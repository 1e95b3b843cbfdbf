"""The input of attempts, read in sets after their claims are committed."""

from collections.abc import Sequence
from functools import cache
from typing import Any

from agent.store.artifacts import artifact_rows
from agent.store.db.database import Connection
from agent.store.db.dialect import Sql
from agent.store.db.json_values import decode, set_of
from agent.store.engine.reads import Rows


@cache
def _tasks(sql: Sql) -> str:
    return (
        "SELECT t.id, t.input, t.trigger, t.created_at FROM "
        f"{sql.rows(id='text')} JOIN tasks AS t ON t.id = r.id"
    )


def tasks(connection: Connection, task_ids: Sequence[str]) -> Rows:
    """Return (id, input, trigger, created_at) of tasks."""
    return connection.query(_tasks(connection.sql), rows=_singles(task_ids))


@cache
def _own(sql: Sql) -> str:
    return (
        "SELECT s.id, s.checkpoint, s.item, s.waiting_on, s.error FROM "
        f"{sql.rows(id='text')} JOIN steps AS s ON s.id = r.id"
    )


def own_values(connection: Connection, step_ids: Sequence[str]) -> Rows:
    """Return (id, checkpoint, item, waiting_on, last error) of steps."""
    return connection.query(_own(connection.sql), rows=_singles(step_ids))


@cache
def _ended(sql: Sql) -> str:
    addresses = sql.rows(task_id="text", index="int")
    return (
        'SELECT s.id, s.task_id, s."index", s.status, s.output, s.error, s.parallel_count FROM '
        f'{addresses} JOIN steps AS s ON s.task_id = r.task_id AND s."index" = r."index"'
        " AND s.parallel_index = -1"
    )


def ended_steps(connection: Connection, addresses: Sequence[tuple[str, int]]) -> Rows:
    """Return (id, task id, index, status, output, error, item count) of steps by (task id, index)."""
    return connection.query(_ended(connection.sql), rows=set_of(addresses))


def gathered(
    connection: Connection, task_id: str, index: int, read: artifact_rows.Read = artifact_rows.load
) -> list[Any]:
    """Return the outputs of a group's items in order; null for an item without one."""
    rows = connection.query(
        'SELECT output FROM steps WHERE task_id = :task_id AND "index" = :index'
        " AND parallel_index >= 0 ORDER BY parallel_index",
        task_id=task_id,
        index=index,
    )
    return [read(connection, output) for (output,) in rows]


def first_claimed_at(connection: Connection, task_id: str, step_id: str) -> int | None:
    """Return when a step was claimed for the first time."""
    rows = connection.query(
        "SELECT min(at) FROM events WHERE task_id = :task_id AND step_id = :step_id"
        " AND type = 'step.claimed'",
        task_id=task_id,
        step_id=step_id,
    )
    at: int | None = rows[0][0]
    return at


@cache
def _first_claims(sql: Sql) -> str:
    claim = (
        "(SELECT min(e.at) FROM events AS e WHERE e.task_id = s.task_id AND e.step_id = s.id"
        " AND e.type = 'step.claimed')"
    )
    return (
        f"SELECT s.id, coalesce(s.first_claimed_at, {claim}) FROM "
        f"{sql.rows(id='text')} JOIN steps AS s ON s.id = r.id"
    )


def first_claims(connection: Connection, step_ids: Sequence[str]) -> dict[str, int]:
    """Return when steps were first claimed, in whichever task of their line."""
    rows = connection.query(_first_claims(connection.sql), rows=_singles(step_ids))
    return {str(step_id): int(at) for step_id, at in rows if at is not None}


def raised_seconds(connection: Connection, task_id: str, step: str) -> float | None:
    """Return the time limit that an operator gave a step; None if there is none."""
    rows = connection.query(
        "SELECT data FROM events WHERE task_id = :task_id AND type = 'budget.raised' ORDER BY seq",
        task_id=task_id,
    )
    events = [decode(data) or {} for (data,) in rows]
    times = [data["seconds"] for data in events if data.get("step") == step and "seconds" in data]
    return float(times[-1]) if times else None


def _singles(ids: Sequence[str]) -> str:
    return set_of([[value] for value in ids])
