"""How a turn opens: everything that can be asked for at once, in one round trip."""

from dataclasses import dataclass
from typing import Any, Final

from agent.store import queries
from agent.store.database import Connection
from agent.store.values import set_of

_FENCE: Final = (
    "UPDATE workers SET turn = :turn WHERE id = :id AND turn = :before AND dead = 0 RETURNING id"
)


@dataclass(frozen=True, slots=True)
class Opened:
    """What a turn knows when it begins."""

    is_fence_held: bool
    tasks: queries.Rows
    steps: queries.Rows
    due: queries.Rows


def open_turn(
    tx: Connection,
    worker_id: str,
    turn: int,
    tasks: tuple[tuple[str, ...], list[str]],
    steps: tuple[tuple[str, ...], list[tuple[str, int, int]]],
    due: tuple[int, int],
    *,
    is_waiting: bool = False,
) -> Opened:
    """Move the worker's turn on, lock and read tasks, read steps, and find what is due.

    Steps are read in a statement after the one that locks their tasks, or they could be older than
    the lock. The fence comes first: it makes a dead worker's turn change nothing at all.
    """
    asked: list[tuple[str, dict[str, Any]]] = [
        (_FENCE, {"id": worker_id, "turn": turn, "before": turn - 1})
    ]
    if tasks[1]:
        locking = queries.locking_statement(tx.sql, tasks[0], is_waiting=is_waiting)
        asked.append((locking, {"ids": set_of(tasks[1])}))
    if steps[1]:
        asked.append((queries.places_statement(tx.sql, steps[0]), {"rows": set_of(steps[1])}))
    if due[1] > 0:
        asked.append((queries.due_statement(tx.sql), {"now": due[0], "most": due[1]}))
    answers = iter(tx.query_each(asked))
    return Opened(
        is_fence_held=bool(next(answers)),
        tasks=next(answers) if tasks[1] else [],
        steps=next(answers) if steps[1] else [],
        due=next(answers) if due[1] > 0 else [],
    )
