"""How a turn opens: everything that can be asked for at once, in one round trip, or in none.

Where the worker remembers every row that its turn is about, nothing is asked: the database is told
what the turn takes for granted, together with what it writes, and refuses both if that has changed.
The version of a task is the transaction that wrote its row last; nobody changes a step without
writing its task.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from agent.store.db.database import Connection, DeferredRows
from agent.store.db.dialect import Sql
from agent.store.db.json_values import set_of
from agent.store.engine import reads

_FENCE: Final = "UPDATE workers SET turn = :turn WHERE id = :id AND turn = :before AND dead = 0"
_VERSIONS: Final = 2**32
"""PostgreSQL keeps so much of a transaction's number in the rows that it wrote."""


@dataclass(frozen=True, slots=True)
class TxStart:
    """What a turn knows when it begins."""

    fence: reads.Rows
    """The number of the transaction, if the worker is alive; else nothing."""
    tasks: reads.Rows
    steps: reads.Rows
    due: reads.Rows


@cache
def _fence(sql: Sql) -> str:
    return f"{_FENCE} RETURNING {sql.xid}"


def open_turn(
    tx: Connection,
    worker_id: str,
    turn: int,
    tasks: tuple[tuple[str, ...], list[str]],
    steps: tuple[tuple[str, ...], list[tuple[str, int, int]]],
    due: tuple[int, int],
    *,
    is_waiting: bool = False,
) -> TxStart:
    """Move the worker's turn on, lock and read tasks, read steps, and find what is due.

    Steps are read in a statement after the one that locks their tasks, or they could be older than
    the lock. The fence comes first: it makes a dead worker's turn change nothing at all.
    """
    asked: list[tuple[str, dict[str, Any]]] = [
        (_fence(tx.sql), {"id": worker_id, "turn": turn, "before": turn - 1})
    ]
    if tasks[1]:
        locking = reads.locking_statement(tx.sql, tasks[0], is_waiting=is_waiting)
        asked.append((locking, {"ids": set_of(tasks[1])}))
    if steps[1]:
        asked.append((reads.places_statement(tx.sql, steps[0]), {"rows": set_of(steps[1])}))
    if due[1] > 0:
        asked.append((reads.due_statement(tx.sql), {"now": due[0], "most": due[1]}))
    answers = iter(tx.query_each(asked))
    return TxStart(
        fence=next(answers),
        tasks=next(answers) if tasks[1] else [],
        steps=next(answers) if steps[1] else [],
        due=next(answers) if due[1] > 0 else [],
    )


# Both fail by a division by zero where they do not find what they must: a statement has no other way
# to end its transaction.
@cache
def _assumed_fence(sql: Sql) -> str:
    return f"WITH fence AS ({_FENCE} RETURNING id) SELECT {sql.xid} / count(*) FROM fence"


@cache
def _assumed_tasks(sql: Sql) -> str:
    return (
        f"WITH held AS MATERIALIZED (SELECT tasks.id FROM {sql.rows(id='text', version='text')}"
        " JOIN tasks ON tasks.id = r.id AND tasks.xmin = r.version::xid"
        f" ORDER BY tasks.id {sql.skip_locked})"
        " SELECT 1 / (count(*) = :count)::int FROM held"
    )


def assume(
    tx: Connection, worker_id: str, turn: int, versions: Iterable[tuple[str, str]]
) -> DeferredRows:
    """Move the worker's turn on, and lock tasks that must still be as they were, by (id, version).

    Nothing is waited for: if the worker is dead, or a task is another one or somebody else's just
    now, the transaction fails as stale. The rows will hold its number.
    """
    xid = tx.later(_assumed_fence(tx.sql), id=worker_id, turn=turn, before=turn - 1)
    tasks = list(versions)
    if tasks:
        tx.defer(_assumed_tasks(tx.sql), rows=set_of(tasks), count=len(tasks))
    return xid


def version(xid: int) -> str:
    """Return what is the version of a row that a transaction wrote."""
    return str(xid % _VERSIONS)
