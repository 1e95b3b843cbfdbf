"""Tasks as the last commits left them, so that the next transaction need not read them.

On SQLite a connection can tell whether another one has changed the file: while none has, the cached
rows are what the file holds. PostgreSQL cannot tell, but it can refuse: each task is cached with the
version of its row, and a transaction that finds another version fails as stale. The time at which the
next task is due is cached too; the poll finds tasks that other processes make due.
"""

from collections.abc import Collection, Iterable
from typing import Final

from agent.core.state_machine import TaskStatus
from agent.store.db.database import Connection, DeferredRows
from agent.store.engine import begin_tx, reads
from agent.tasks.commit.batch import TxResult
from agent.tasks.state.locked_task import LockedTask

MOST_STEPS: Final = 64
"""A task with more open steps is read when it is needed: a transaction goes through all of them."""
_MOST_VERSIONS: Final = 512
_CONTENDED_COMMITS: Final = 100
"""For how many commits a task that another process also writes is not cached."""
_NEVER: Final = 2**62


class TaskCache:
    """Running tasks as they were committed last; the attempts in flight bound their number."""

    def __init__(self) -> None:
        self._tasks: dict[str, LockedTask] = {}
        self.versions: dict[tuple[str, str, str | None, str | None], int] = {}
        """The latest versions of workflows, by name, hash, path and code."""
        self._next_due = 0
        """Before this time nothing is due; 0 when that is not known."""
        self._due_query: DeferredRows | None = None
        """The query of the next due time by the transaction that was closed last."""
        self._mark: tuple[int, int] | None = None
        """Of the transaction that was opened last, on SQLite."""
        self._is_kept = False
        """Whether that transaction was committed and is cached."""
        self.generation = 0
        """How often the cache was emptied: a transaction that began before is not kept."""
        self._contended: set[str] = set()
        self._commits = 0

    def open(self, tx: Connection) -> None:
        """Begin a transaction; on SQLite, drop everything unless it directly follows a kept one."""
        if tx.can_assume:
            return
        before, self._mark = self._mark, tx.mark()
        is_next = before is not None and self._mark == (before[0], before[1] + 1)
        if not (is_next and self._is_kept):
            self._clear()
        self._is_kept = False

    def is_anything_due(self, now: int) -> bool:
        """Whether a task may be due; False is certain except for writes of other processes."""
        return now >= self._next_due

    def expect_due_query(self) -> None:
        """Drop the next due time: this transaction queries due tasks, and then the next time."""
        self._next_due = 0

    def take(self, task_ids: Iterable[str], now: int) -> dict[str, LockedTask]:
        """Remove and return the cached ones of these tasks, for this transaction to change."""
        tasks = {}
        for task_id in task_ids:
            locked = self._tasks.pop(task_id, None)
            if locked is not None:
                locked.now = now
                tasks[task_id] = locked
        return tasks

    def close(self, tx: Connection, locked_tasks: Collection[LockedTask]) -> DeferredRows | None:
        """Derive the next due time from the written rows, or query it; return the query."""
        self._due_query = None
        if self._next_due == 0 or not all(locked.is_complete for locked in locked_tasks):
            # The database derives the wake times of tasks that are only partly in memory.
            self._due_query = tx.later(reads.SOONEST)
            return self._due_query
        for locked in locked_tasks:
            wake = locked.task.next_wake_time
            if wake is not None and wake < self._next_due:
                self._next_due = wake
        return None

    def keep(self, result: TxResult) -> None:
        """Cache the tasks of a transaction, now that it is committed."""
        if result.cache_generation != self.generation or result.transaction.rows is None:
            return
        self._is_kept = True
        if result.soonest is not None:
            # A transaction that was closed later may have made something due earlier.
            is_last = result.soonest is self._due_query
            soonest = min((row[0] for row in result.soonest.rows or ()), default=_NEVER)
            self._next_due = soonest if is_last else 0
        self._trim()
        version = begin_tx.version(result.transaction.rows[0][0])
        for locked in result.locked_tasks:
            task = locked.task
            if (
                task.status == TaskStatus.RUNNING
                and task.steps_running > 0
                and task.id not in self._contended
            ):
                if locked.is_written:
                    locked.version = version
                locked.mark_committed()
                if len(locked.unused_steps) <= MOST_STEPS:
                    self._tasks[task.id] = locked

    def empty(self, contended: Iterable[str] = ()) -> None:
        """Drop everything after a failure; do not cache contended tasks for some commits."""
        self._clear()
        self.generation += 1
        self._contended.update(contended)

    def _clear(self) -> None:
        self._tasks.clear()
        self.versions.clear()
        self._next_due = 0

    def _trim(self) -> None:
        self._commits += 1
        if self._commits % _CONTENDED_COMMITS == 0:
            self._contended.clear()
        if len(self.versions) > _MOST_VERSIONS:
            self.versions.clear()
