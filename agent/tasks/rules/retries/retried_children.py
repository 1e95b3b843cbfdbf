"""Children of a retried task: a step continues the child that it had in an earlier task.

A retry is the same work to the outside world, at every depth. So the new child retries the earlier
one. If the earlier child had succeeded before its parent recorded that, its result is taken now. Where its
answers do not cover what the parent runs now, it is retried all the same, and asks again.
"""

import json
from dataclasses import dataclass
from typing import Final

from agent.core.state_machine import TASK_ENDED, TaskStatus
from agent.core.waits import ChildRequest
from agent.steps.types.outcome import Json, StepError
from agent.store.db.database import Connection
from agent.store.engine import lineage, reads, task_rows
from agent.tasks.errors import RefusedError
from agent.tasks.rules.retries import retry_fork
from agent.tasks.rules.retries.retry_fork import Parent
from agent.tasks.state.graph_cache import GraphCache
from agent.tasks.state.locked_task import LockedTask
from agent.tasks.state.rows import TASK_COLUMNS, StepRow, TaskRow
from agent.workflows.compile.inputs import InputError, check_inputs
from agent.workflows.graph import Graph


@dataclass(frozen=True, slots=True)
class RetriedChild:
    """The replacement of a new child; at most one field is set."""

    child: LockedTask | None = None
    """The task that retries the earlier child."""
    done_id: str | None = None
    """The earlier child, which succeeded."""
    refusal: StepError | None = None


BUSY: Final = RetriedChild()
"""Another transaction holds the earlier child: try again."""


def take_up(
    tx: Connection,
    locked: LockedTask,
    step: StepRow,
    request: ChildRequest,
    trigger: dict[str, Json],
    graphs: GraphCache,
) -> RetriedChild | None:
    """Continue the child that a step had in an earlier task; None if it had none."""
    task = locked.task
    if task.origin_id == task.id:
        return None
    earlier_id = _earlier_child(tx, locked, step, trigger)
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
            f"task {earlier_id} did this before with another input, and its effects would happen"
            " again; to repeat them, fork the task"
        )
        return RetriedChild(refusal=StepError("child_changed", "input", text))
    changes = lineage.asked_again(tx, task.id, locked.definition(step).name)
    if row.status == TaskStatus.SUCCEEDED and changes is None:
        return RetriedChild(done_id=earlier_id)
    parent = Parent(task.id, step.id, task.depth + 1, trigger)
    earlier = LockedTask(row, graph, locked.now)
    try:
        child = retry_fork.retry(tx, earlier, parent, above=changes).locked
    except RefusedError as error:
        return RetriedChild(refusal=StepError("child_changed", "input", str(error)))
    child.source_path = graphs.path(tx, row.workflow_name, row.workflow_version)
    return RetriedChild(child=child)


def _earlier_child(
    tx: Connection, locked: LockedTask, step: StepRow, trigger: dict[str, Json]
) -> str | None:
    """Return the last task for this step's request, retries by other parents included."""
    name = locked.definition(step).name
    children = lineage.earlier_children(tx, locked.task.id, name, step.index, step.parallel_index)
    for task_id, text in children:
        earlier_trigger = json.loads(text) if text else {}
        if earlier_trigger.get("use") == trigger.get("use"):
            last = str(task_id)
            while (retry := lineage.retried_as(tx, last)) is not None:
                last = retry
            return last
    return None


def _is_same(tx: Connection, task_id: str, graph: Graph, request: ChildRequest) -> bool:
    """Whether an earlier child ran the workflow that is asked for, with the same input."""
    earlier_input, _, _ = task_rows.input_of(tx, task_id)
    try:
        wanted = check_inputs(graph, dict(request.input or {}))
    except InputError:
        return False
    return bool(graph.name == request.workflow and json.loads(earlier_input) == wanted)
