"""The transactions of operators, and the tasks that they lock."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from agent.core.clock import Clock
from agent.core.quick_classes.quick_dataclasses import dataclass
from agent.store.db.database import Connection, Database
from agent.store.engine import reads
from agent.tasks.errors import NotFoundError, RefusedError
from agent.tasks.state.graph_cache import GraphCache, UnreadableError
from agent.tasks.state.locked_task import LockedTask
from agent.tasks.state.rows import TASK_COLUMNS, TaskRow
from agent.workflows.graph import Graph

LOCK_TIMEOUT_MS: Final = 15_000


@dataclass(frozen=True, slots=True)
class TaskLocks:
    """Opens transactions on one database and locks tasks in them."""

    database: Database
    clock: Clock
    graphs: GraphCache

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Open a transaction; its commit notifies running daemons."""
        with self.database.connect("writer") as tx, tx.transaction():
            tx.lock_timeout(LOCK_TIMEOUT_MS)
            yield tx
            tx.notify()

    def lock(self, tx: Connection, task_id: str, *, is_ending: bool = False) -> LockedTask:
        """Wait for a task that a worker has locked, and lock it; only its end needs no definition."""
        rows = reads.lock_tasks(tx, TASK_COLUMNS, [task_id], is_waiting=True)
        if not rows:
            raise NotFoundError(f"there is no task {task_id}")
        task = TaskRow.read(rows[0])
        try:
            graph = self.graphs.get(tx, task.workflow_name, task.workflow_version)
        except UnreadableError as error:
            if not is_ending:
                raise RefusedError(f"the task can only be canceled: {error}") from error
            # Abandoning steps needs no definition.
            graph = Graph(name=task.workflow_name, steps=[])
        return LockedTask(task, graph, self.clock.now())
