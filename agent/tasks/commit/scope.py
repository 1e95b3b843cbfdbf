"""The shared state of one transaction, for each of its parts."""

from dataclasses import dataclass, field
from typing import Any

from agent.store.db.database import Connection
from agent.tasks.commit.batch import Batch, TxResult
from agent.tasks.commit.task_cache import TaskCache
from agent.tasks.commit.work_reads import WorkReads
from agent.tasks.rules.claiming import ClaimCapacity
from agent.tasks.rules.state_writes import LockedState
from agent.tasks.state.graph_cache import GraphCache
from agent.tasks.state.locked_task import LockedTask
from agent.tasks.state.rows import StepRow, TaskRow


@dataclass(slots=True)
class TxScope:
    """One open transaction of a worker: its inputs, the tasks that it locked, and its result."""

    connection: Connection
    batch: Batch
    capacity: ClaimCapacity
    graphs: GraphCache
    cache: TaskCache
    now: int
    may_assume: bool = True
    """Whether it may rely on cached rows that the database then checks."""
    tasks: dict[str, LockedTask] = field(default_factory=dict)
    """The tasks whose locks it holds."""
    state: LockedState | None = None
    """The values of `state` that it reads or writes; None where there are none."""
    work_reads: WorkReads | None = None
    """The reads for calls of external workers; None before they are made."""
    result: TxResult = field(default_factory=TxResult)

    @property
    def can_assume(self) -> bool:
        """Whether it may rely on cached rows, on this database."""
        return self.may_assume and self.connection.can_assume

    def add_task(self, values: tuple[Any, ...]) -> None:
        """Add a task that was locked and read."""
        task = TaskRow.read(values)
        graph = self.graphs.get(self.connection, task.workflow_name, task.workflow_version)
        self.tasks[task.id] = LockedTask(task, graph, self.now)

    def add_step(self, values: tuple[Any, ...]) -> None:
        """Add a step that was read, unless its task is locked by another transaction."""
        locked = self.tasks.get(values[1])
        if locked is not None:
            locked.add(StepRow.read(values))
