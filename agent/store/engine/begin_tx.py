"""The first statements of a worker's transaction, in one round trip or in none.

Where the worker has cached every row that its transaction needs, nothing is read: the transaction
states the versions that it relies on, together with what it writes, and the database refuses both if
one has changed. The version of a task is the id of the transaction that wrote its row last. No step
changes without a write to its task.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

from agent.store.db.database import Connection, DeferredRows
from agent.store.db.dialect import Sql
from agent.store.db.json_values import set_of
from agent.store.engine import reads

_FENCE: Final = "UPDATE workers SET turn = :turn WHERE id = :id AND turn = :before AND dead = 0"
_VERSIONS: Final = 2**32
"""PostgreSQL keeps the transaction id in a row modulo this."""


@dataclass(frozen=True, slots=True)
class TxStart:
    """The rows that a transaction reads when it begins."""

    fence: reads.Rows
    """The id of the transaction; no row if the worker was declared dead."""
    tasks: reads.Rows
    steps: reads.Rows
    due: reads.Rows
    more: list[reads.Rows]
    """The results of further statements."""


@cache
def _fence(sql: Sql) -> str:
    return f"{_FENCE} RETURNING {sql.xid}"


def begin(
    tx: Connection,
    worker_id: str,
    tx_number: int,
    tasks: tuple[tuple[str, ...], list[str]],
    steps: tuple[tuple[str, ...], list[tuple[str, int, int]]],
    due: tuple[int, int],
    *,
    more: Sequence[reads.Statement] = (),
    is_waiting: bool = False,
) -> TxStart:
    """Advance the worker's number, lock and read tasks, read steps, and query due tasks.

    Later statements read the steps and `more`, so that they are not older than the lock of their
    task. The fence comes first: the transaction of a dead worker changes nothing.
    """
    statements: list[reads.Statement] = [
        (_fence(tx.sql), {"id": worker_id, "turn": tx_number, "before": tx_number - 1})
    ]
    if tasks[1]:
        locking = reads.locking_statement(tx.sql, tasks[0], is_waiting=is_waiting)
        statements.append((locking, {"ids": set_of(tasks[1])}))
    if steps[1]:
        statements.append((reads.addresses_statement(tx.sql, steps[0]), {"rows": set_of(steps[1])}))
    if due[1] > 0:
        statements.append((reads.due_statement(tx.sql), {"now": due[0], "most": due[1]}))
    statements += more
    answers = iter(tx.query_each(statements))
    return TxStart(
        fence=next(answers),
        tasks=next(answers) if tasks[1] else [],
        steps=next(answers) if steps[1] else [],
        due=next(answers) if due[1] > 0 else [],
        more=list(answers),
    )


# Both fail with a division by zero where a row is not as expected: a statement has no other way to end
# its transaction.
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
    tx: Connection, worker_id: str, tx_number: int, versions: Iterable[tuple[str, str]]
) -> DeferredRows:
    """Advance the worker's number, and lock tasks that must still have these versions.

    It waits for nothing: if the worker is dead, or a task has changed or is locked, the transaction
    fails as stale. The rows that are returned will hold the id of the transaction.
    """
    xid = tx.later(_assumed_fence(tx.sql), id=worker_id, turn=tx_number, before=tx_number - 1)
    tasks = list(versions)
    if tasks:
        tx.defer(_assumed_tasks(tx.sql), rows=set_of(tasks), count=len(tasks))
    return xid


def version(xid: int) -> str:
    """Return the version of rows that a transaction wrote."""
    return str(xid % _VERSIONS)
