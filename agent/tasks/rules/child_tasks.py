"""Child tasks: a step that runs another workflow and waits for its end.

The child is created under its parent's lock. Its end is told to the parent in a turn of its own,
since a turn never waits for a second task; should that word be lost with its worker, the waiting
step looks at its child by itself.
"""

from dataclasses import dataclass

from agent.core.state_machine import TASK_ENDED, StepStatus, TaskStatus
from agent.core.waits import Child, ChildRequest
from agent.steps.types.outcome import Json, StepError
from agent.store.db.database import Connection
from agent.store.engine import reads, workflow_versions
from agent.tasks.rules import creation, retried_children
from agent.tasks.rules.retried_children import RetriedChild
from agent.tasks.state import transitions
from agent.tasks.state.graph_cache import GraphCache
from agent.tasks.state.locked_task import LockedTask
from agent.tasks.state.rows import STEP_COLUMNS, StepRow
from agent.workflows.compile.inputs import InputError, check_inputs


@dataclass(frozen=True, slots=True)
class ChildEnd:
    """A task that ended, and the step of its parent that may wait for it."""

    task_id: str
    status: str
    parent_task_id: str
    parent_step_id: str | None


def create_child(
    tx: Connection,
    locked: LockedTask,
    step: StepRow,
    request: ChildRequest,
    graphs: GraphCache,
    max_depth: int,
) -> LockedTask | None:
    """Create the task that a step asked for and is waiting on; a refusal fails the step.

    A step that asked for a tool of its agent is woken with the refusal instead.
    """
    name = request.workflow
    if locked.task.depth >= max_depth:
        message = f"tasks may be nested {max_depth} deep, and this is that deep already"
        _refuse(locked, step, request, StepError("too_deep", "limit", message))
        return None
    trigger: dict[str, Json] = {"parent": locked.task.id, "step": locked.definition(step).name}
    if request.tool_use is not None:
        # By which a retry finds this child again.
        trigger["use"] = request.tool_use
    before = retried_children.take_up(tx, locked, step, request, trigger, graphs)
    if before is not None:
        return _go_on(locked, step, request, before)
    found = workflow_versions.latest(tx, name)
    if found is None:
        message = f"there is no workflow called {name!r}"
        _refuse(locked, step, request, StepError("no_such_workflow", "input", message))
        return None
    version, _, source, path = found
    graph = graphs.get(tx, name, version)
    try:
        given = check_inputs(graph, dict(request.input or {}))
    except InputError as error:
        _refuse(locked, step, request, StepError("bad_input", "input", str(error)))
        return None
    submission = creation.Submission(
        graph=graph,
        input=given,
        trigger=trigger,
        source=source,
        path=path,
        parent_task_id=locked.task.id,
        parent_step_id=step.id,
        depth=locked.task.depth + 1,
    )
    version = creation.register(tx, submission, locked.now)
    return _await(locked, step, request, creation.create(tx, submission, version, locked.now))


def _await(
    locked: LockedTask, step: StepRow, request: ChildRequest, child: LockedTask
) -> LockedTask:
    """Let a step wait for its new child, which is paused if the parent is."""
    if locked.task.status == TaskStatus.PAUSED:
        transitions.move_task(child, "task.paused")
    step.wait = Child(child.task.id, request.tool_use)
    return child


def _go_on(
    locked: LockedTask, step: StepRow, request: ChildRequest, before: RetriedChild
) -> LockedTask | None:
    """Let a step take up what its child of an earlier task has left."""
    if before.child is not None:
        return _await(locked, step, request, before.child)
    if before.refusal is not None:
        _refuse(locked, step, request, before.refusal)
    elif before.done_id is not None:
        step.wait = Child(before.done_id, request.tool_use)
        transitions.wake(locked, step, {"status": str(TaskStatus.SUCCEEDED)})
    else:
        # A turn waits for nobody: the step asks again.
        step.waiting_on = None
        transitions.wake(locked, step)
    return None


def _refuse(locked: LockedTask, step: StepRow, request: ChildRequest, error: StepError) -> None:
    if request.tool_use is None:
        transitions.fail(locked, step, error)
        return
    step.wait = Child(None, request.tool_use)
    document = error.document(step.attempt)
    transitions.wake(locked, step, {"status": "refused", "error": document})


def ended_status(tx: Connection, task_id: str) -> str | None:
    """Return the status of a task that ended; None while it goes on, "lost" if it is gone."""
    found = tx.query("SELECT status FROM tasks WHERE id = :id", id=task_id)
    if not found:
        return "lost"
    return str(found[0][0]) if found[0][0] in TASK_ENDED else None


def tell_parent(tx: Connection, locked: LockedTask, end: ChildEnd) -> None:
    """Wake the step that waits for a child that has ended."""
    if end.parent_step_id is None or locked.task.status in TASK_ENDED:
        return
    for values in reads.steps_by_id(tx, STEP_COLUMNS, [end.parent_step_id]):
        step = locked.add(StepRow.read(values))
        on = step.wait if step.status == StepStatus.WAITING else None
        if isinstance(on, Child) and on.task_id == end.task_id:
            transitions.wake(locked, step, {"status": end.status})
