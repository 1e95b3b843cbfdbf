"""What this worker need not read again, because nobody else has written it.

SQLite tells a connection whether any other has changed the file: as long as none has, the rows that
our last turns wrote are what it holds. PostgreSQL cannot tell, but it can refuse: there each task is
kept with the version that its row has, and a turn that finds another one fails as stale, forgets
everything and reads. When the next task is due is remembered too: others' work is found by looking.
"""

from collections.abc import Collection, Iterable
from typing import Final

from agent.core.state_machine import TaskStatus
from agent.store.db.database import Connection, DeferredRows
from agent.store.engine import begin_tx, reads
from agent.tasks.commit.batch import TxResult
from agent.tasks.state.locked_task import LockedTask

MOST_STEPS: Final = 64
"""A unit with more open steps in memory is read when it is needed: a turn looks through them."""
_MOST_VERSIONS: Final = 512
_DOUBTFUL_TURNS: Final = 100
"""For so long tasks are not kept that others may be at work on as well."""
_NEVER: Final = 2**62


class TaskCache:
    """Units of running tasks as they were committed last; bounded by the attempts in flight."""

    def __init__(self) -> None:
        self._units: dict[str, LockedTask] = {}
        self.versions: dict[tuple[str, str, str | None], int] = {}
        """The latest versions of workflows, by name, hash and path."""
        self._next_due = 0
        """Before this nothing is due; 0 when it is not known."""
        self._asked: DeferredRows | None = None
        """When the next task is due, as the transaction that was closed last has asked."""
        self._mark: tuple[int, int] | None = None
        """Of the transaction that was opened last, on SQLite."""
        self._is_kept = False
        """Whether that one was committed and is remembered."""
        self._is_forgotten = False
        self._doubtful: set[str] = set()
        self._turns = 0

    def open(self, tx: Connection) -> None:
        """On SQLite, forget everything unless this transaction follows right after the kept one."""
        self._is_forgotten = False
        if tx.can_assume:
            return
        before, self._mark = self._mark, tx.mark()
        is_next = before is not None and self._mark == (before[0], before[1] + 1)
        if not (is_next and self._is_kept):
            self._clear()
        self._is_kept = False

    def is_anything_due(self, now: int) -> bool:
        """Whether a task may be due; False is certain but for what others have written."""
        return now >= self._next_due

    def look(self) -> None:
        """Take note that what is due is being asked for: when the next is due must be asked too."""
        self._next_due = 0

    def take(self, task_ids: Iterable[str], now: int) -> dict[str, LockedTask]:
        """Return tasks as they are, as far as they are known, for this transaction to change."""
        locked_tasks = {}
        for task_id in task_ids:
            locked = self._units.pop(task_id, None)
            if locked is not None:
                locked.now = now
                locked_tasks[task_id] = locked
        return locked_tasks

    def close(self, tx: Connection, locked_tasks: Collection[LockedTask]) -> DeferredRows | None:
        """Find out when the next task is due, now that everything is written, or ask for it."""
        self._asked = None
        if self._next_due == 0 or not all(locked.is_complete for locked in locked_tasks):
            # The wake times of those that are not whole are derived by the database.
            self._asked = tx.later(reads.SOONEST)
            return self._asked
        for locked in locked_tasks:
            wake = locked.task.next_wake_time
            if wake is not None and wake < self._next_due:
                self._next_due = wake
        return None

    def forget(self, doubtful: Iterable[str] = ()) -> None:
        """Keep nothing of the transactions until now, and of some tasks nothing for a while."""
        self._clear()
        self._is_forgotten = True
        self._doubtful.update(doubtful)

    def keep(self, turned: TxResult) -> None:
        """Keep what a transaction has left, now that it is committed."""
        if self._is_forgotten or turned.transaction.rows is None:
            return
        self._is_kept = True
        if turned.soonest is not None:
            # If another was closed since, it may have left something to be done sooner.
            is_last = turned.soonest is self._asked
            soonest = min((row[0] for row in turned.soonest.rows or ()), default=_NEVER)
            self._next_due = soonest if is_last else 0
        version = begin_tx.version(turned.transaction.rows[0][0])
        self._trim()
        for locked in turned.locked_tasks:
            task = locked.task
            if (
                task.status == TaskStatus.RUNNING
                and task.steps_running > 0
                and task.id not in self._doubtful
            ):
                if locked.is_written:
                    locked.version = version
                locked.settle_down()
                if len(locked.shelf) <= MOST_STEPS:
                    self._units[task.id] = locked

    def _clear(self) -> None:
        self._units.clear()
        self.versions.clear()
        self._next_due = 0

    def _trim(self) -> None:
        self._turns += 1
        if self._turns % _DOUBTFUL_TURNS == 0:
            self._doubtful.clear()
        if len(self.versions) > _MOST_VERSIONS:
            self.versions.clear()
