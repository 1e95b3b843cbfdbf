"""Child tasks: a step starts another workflow and waits until that task has ended.

The child is created under its parent's lock. Its end wakes the parent in a transaction of its own,
since a worker's transaction never waits for a second task. If that worker dies in between, the waiting
step finds the end by itself: it checks its child from time to time.
"""

from dataclasses import dataclass

from agent.core.state_machine import TASK_ENDED, StepStatus, TaskStatus
from agent.core.waits import Child, ChildRequest
from agent.steps.types.outcome import Json, StepError
from agent.store.db.database import Connection
from agent.store.engine import reads, task_rows, workflow_versions
from agent.tasks.rules import creation
from agent.tasks.rules.retries import retried_children
from agent.tasks.rules.retries.retried_children import RetriedChild
from agent.tasks.state import pauses, transitions
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
    """Create the child task that a step waits on; a refusal fails the step.

    An agent's step that asked for it as a tool is woken with the refusal instead.
    """
    name = request.workflow
    if locked.task.depth >= max_depth:
        message = f"tasks may be nested {max_depth} deep, and this one is already at that depth"
        _refuse(locked, step, request, StepError("too_deep", "limit", message))
        return None
    trigger: dict[str, Json] = {"parent": locked.task.id, "step": locked.definition(step).name}
    if request.tool_use is not None:
        # By which a retry finds this child again.
        trigger["use"] = request.tool_use
    before = retried_children.take_up(tx, locked, step, request, trigger, graphs)
    if before is not None:
        return _continue_from(tx, locked, step, request, before)
    latest = workflow_versions.latest(tx, name)
    if latest is None:
        message = f"there is no workflow called {name!r}"
        _refuse(locked, step, request, StepError("no_such_workflow", "input", message))
        return None
    version, _, source, path = latest
    graph = graphs.get(tx, name, version)
    try:
        values = check_inputs(graph, dict(request.input or {}))
    except InputError as error:
        _refuse(locked, step, request, StepError("bad_input", "input", str(error)))
        return None
    submission = creation.Submission(
        graph=graph,
        input=values,
        trigger=trigger,
        source=source,
        path=path,
        parent_task_id=locked.task.id,
        parent_step_id=step.id,
        depth=locked.task.depth + 1,
        chat_origin=locked.task.chat_origin,
    )
    version = creation.register(tx, submission, locked.now)
    return _wait_for_child(
        tx, locked, step, request, creation.create(tx, submission, version, locked.now)
    )


def _wait_for_child(
    tx: Connection, locked: LockedTask, step: StepRow, request: ChildRequest, child: LockedTask
) -> LockedTask:
    """Let a step wait on its new child, which is paused if the parent is."""
    if locked.task.status == TaskStatus.PAUSED:
        transitions.pause_task(child, pauses.of_task(tx, locked.task))
    step.wait = Child(child.task.id, request.tool_use)
    return child


def _continue_from(
    tx: Connection, locked: LockedTask, step: StepRow, request: ChildRequest, before: RetriedChild
) -> LockedTask | None:
    """Let a step continue from the child that it had in the task that this one retries."""
    if before.child is not None:
        return _wait_for_child(tx, locked, step, request, before.child)
    if before.refusal is not None:
        _refuse(locked, step, request, before.refusal)
    elif before.done_id is not None:
        step.wait = Child(before.done_id, request.tool_use)
        transitions.wake(locked, step, {"status": str(TaskStatus.SUCCEEDED)})
    else:
        # Another transaction holds the earlier child: the step asks again.
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
    """Return the status of a task that ended; None while it is open, "lost" if it does not exist."""
    status = task_rows.status_of(tx, task_id)
    if status is None:
        return "lost"
    return status if status in TASK_ENDED else None


def wake_parent(tx: Connection, locked: LockedTask, end: ChildEnd) -> None:
    """Wake the step that waits on a child that has ended."""
    if end.parent_step_id is None or locked.task.status in TASK_ENDED:
        return
    for values in reads.steps_by_id(tx, STEP_COLUMNS, [end.parent_step_id]):
        step = locked.add(StepRow.read(values))
        on = step.wait if step.status == StepStatus.WAITING else None
        if isinstance(on, Child) and on.task_id == end.task_id:
            transitions.wake(locked, step, {"status": end.status})
