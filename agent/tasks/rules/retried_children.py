"""A step of a retried task that ran a workflow before: what its earlier child did is not done again.

To the outside world a retry is the same work, at every depth. So the new child goes on from the
earlier one as the task itself does from the one that it retries; and where the earlier child had
succeeded before its parent could take what it gave, that is taken now.
"""

import json
from dataclasses import dataclass

from agent.core.state_machine import TASK_ENDED, TaskStatus
from agent.core.waits import ChildRequest
from agent.steps.types.outcome import Json, StepError
from agent.store.db.database import Connection
from agent.store.engine import lineage, reads
from agent.tasks.rules import retry_fork
from agent.tasks.rules.retry_fork import Parent
from agent.tasks.state.graph_cache import GraphCache
from agent.tasks.state.locked_task import LockedTask
from agent.tasks.state.rows import TASK_COLUMNS, StepRow, TaskRow
from agent.workflows.compile.inputs import InputError, check_inputs
from agent.workflows.graph import Graph


@dataclass(frozen=True, slots=True)
class RetriedChild:
    """What becomes of a step's wish for a child that it had before: one of these."""

    child: LockedTask | None = None
    """The task that goes on from the earlier one."""
    done_id: str | None = None
    """The earlier one, which has succeeded."""
    refusal: StepError | None = None


BUSY = RetriedChild()
"""Somebody holds the earlier child at the moment."""


def take_up(
    tx: Connection,
    locked: LockedTask,
    step: StepRow,
    request: ChildRequest,
    trigger: dict[str, Json],
    graphs: GraphCache,
) -> RetriedChild | None:
    """Go on from the child that a step had in the task that this one retries, if it had one."""
    task = locked.task
    if task.origin_id == task.id:
        return None
    earlier_id = _earlier(tx, locked, step, trigger)
    if earlier_id is None:
        return None
    task_rows = reads.lock_tasks(tx, TASK_COLUMNS, [earlier_id])
    if not task_rows:
        return BUSY
    row = TaskRow.read(task_rows[0])
    if row.status not in TASK_ENDED:
        text = f"task {earlier_id}, which did this before, has not ended; retry once it has"
        return RetriedChild(refusal=StepError("child_alive", "child", text))
    graph = graphs.get(tx, row.workflow_name, row.workflow_version)
    if not _is_same(tx, earlier_id, graph, request):
        if not lineage.has_acted(tx, earlier_id):
            return None
        text = (
            f"task {earlier_id} did this before with another input, and what it did would be done"
            " again; fork the task to have that"
        )
        return RetriedChild(refusal=StepError("child_changed", "input", text))
    if row.status == TaskStatus.SUCCEEDED:
        return RetriedChild(done_id=earlier_id)
    parent = Parent(task.id, step.id, task.depth + 1, trigger)
    child = retry_fork.retry(tx, LockedTask(row, graph, locked.now), parent)
    child.source_path = graphs.path(tx, row.workflow_name, row.workflow_version)
    return RetriedChild(child=child)


def _earlier(
    tx: Connection, locked: LockedTask, step: StepRow, trigger: dict[str, Json]
) -> str | None:
    """Return the last task that did what this step asks for, whoever retried it."""
    found = lineage.earlier_children(tx, locked.task.id, step.index, step.parallel_index)
    for task_id, text in found:
        before = json.loads(text) if text else {}
        if before.get("use") == trigger.get("use"):
            last = str(task_id)
            while (again := lineage.retried_as(tx, last)) is not None:
                last = again
            return last
    return None


def _is_same(tx: Connection, task_id: str, graph: Graph, request: ChildRequest) -> bool:
    ((given,),) = tx.query("SELECT input FROM tasks WHERE id = :id", id=task_id)
    try:
        wanted = check_inputs(graph, dict(request.input or {}))
    except InputError:
        return False
    return bool(graph.name == request.workflow and json.loads(given) == wanted)
