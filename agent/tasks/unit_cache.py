"""What this worker need not read again, because nobody else has written.

A database file can tell a connection whether any other has changed it. As long as none has, the rows
that our last turns wrote are what the database holds, and when the next task is due is known too: a
turn of steps in flight here then reads nothing. Where the database cannot tell, as PostgreSQL cannot,
nothing is ever kept.
"""

from collections.abc import Collection
from typing import Final

from agent.states import TaskStatus
from agent.store import queries
from agent.store.database import Connection
from agent.tasks.unit import Unit

MOST_STEPS: Final = 64
"""A unit with more open steps in memory is read when it is needed: a turn looks through them."""
_NEVER: Final = 2**62


class UnitCache:
    """Units of running tasks as they were committed last; bounded by the attempts in flight."""

    def __init__(self) -> None:
        self._units: dict[str, Unit] = {}
        self._mark: tuple[int, int] | None = None
        """Of the transaction under way."""
        self._kept: tuple[int, int] | None = None
        """Of the last one that landed; None while nobody knows what the database holds."""
        self._next_due = 0
        """Before this nothing is due; 0 when it is not known."""

    def open(self, tx: Connection) -> None:
        """Forget everything unless this transaction follows right after the one that was kept."""
        self._mark = tx.mark()
        if self._mark is None or self._kept != (self._mark[0], self._mark[1] - 1):
            self._units.clear()
            self._next_due = 0
        self._kept = None

    def is_anything_due(self, now: int) -> bool:
        """Whether a task may be due; False is certain."""
        return now >= self._next_due

    def take(self, task_id: str, now: int) -> Unit | None:
        """Return a task as it is, for this transaction to change."""
        unit = self._units.pop(task_id, None)
        if unit is not None:
            unit.now = now
        return unit

    def close(self, tx: Connection, units: Collection[Unit]) -> None:
        """Find out when the next task is due, now that everything is written."""
        if self._mark is None:
            return
        if not all(unit.is_complete for unit in units):
            # The database has derived their wake times.
            self._next_due = 0
        elif self._next_due == 0:
            soonest = queries.next_wake_time(tx)
            self._next_due = _NEVER if soonest is None else soonest
        else:
            for unit in units:
                wake = unit.task.next_wake_time
                if wake is not None and wake < self._next_due:
                    self._next_due = wake

    def forget(self) -> None:
        """Keep nothing of the transactions until now."""
        self._units.clear()
        self._mark = None

    def keep(self, units: Collection[Unit]) -> None:
        """Keep what the transaction that was opened last has left, now that it is committed."""
        self._kept = self._mark
        if self._mark is None:
            return
        for unit in units:
            task = unit.task
            if task.status == TaskStatus.RUNNING and task.steps_running > 0:
                unit.settle_down()
                if len(unit.shelf) <= MOST_STEPS:
                    self._units[task.id] = unit
