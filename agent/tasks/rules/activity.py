"""The activity of a task as an event: whether its steps run, or only wait.

Only tasks with steps for external workers have the event `task.activity_changed`: programs that
coordinate workers follow it. Other tasks would pay for it with each timer and each question.
"""

from collections.abc import Collection
from typing import Final

from agent.core import waits
from agent.core.state_machine import StepStatus, TaskStatus
from agent.core.waits import Work
from agent.store.db.database import Connection
from agent.store.engine import work_rows
from agent.tasks.state.locked_task import LockedTask
from agent.tasks.state.rows import STEP_COLUMNS, TASK_COLUMNS, StepRow

_TASK_STATUS: Final = TASK_COLUMNS.index("status")
_STEPS_RUNNING: Final = TASK_COLUMNS.index("steps_running")
_STEP_STATUS: Final = STEP_COLUMNS.index("status")
_WAKE_AT: Final = STEP_COLUMNS.index("wake_at")
_ATTEMPT: Final = STEP_COLUMNS.index("attempt")
_WAITING_ON: Final = STEP_COLUMNS.index("waiting_on")


def note_change(tx: Connection, locked: LockedTask) -> None:
    """Emit that a running task waits from now on, or goes on."""
    task = locked.task
    if not task.original or task.status != TaskStatus.RUNNING:
        return
    if task.original[_TASK_STATUS] != TaskStatus.RUNNING:
        return
    steps, now = [*locked.steps.values(), *locked.unused_steps.values()], locked.now
    was_waiting = task.original[_STEPS_RUNNING] == 0 and not any(
        _was_ready(step, now) for step in steps
    )
    is_waiting = task.steps_running == 0 and not any(
        _is_ready(step, now) or is_leased(step.status, step.waiting_on, step.wake_at)
        for step in steps
    )
    if was_waiting != is_waiting and not _has_other_leases(tx, locked, steps):
        activity = "waiting" if is_waiting else "running"
        locked.emit("task.activity_changed", None, {"activity": activity})


def _is_ready(step: StepRow, now: int) -> bool:
    return step.status == StepStatus.PENDING and step.wake_at is not None and step.wake_at <= now


def is_leased(status: str, waiting_on: str | None, wake_at: int | None) -> bool:
    """Whether an external worker has a step: only a lease gives waiting work a wake time."""
    if status != StepStatus.WAITING or wake_at is None or waiting_on is None:
        return False
    on = waits.parse(waiting_on)
    return isinstance(on, Work) and on.approval_id is None


def _has_other_leases(tx: Connection, locked: LockedTask, steps: Collection[StepRow]) -> bool:
    """Whether workers have steps of the task that this transaction has not read."""
    if locked.is_complete or (len(locked.graph.steps) == 1 and not locked.graph.steps[0].fanout):
        return False
    return work_rows.has_leased_steps(tx, locked.task.id, [step.id for step in steps])


def _was_ready(step: StepRow, now: int) -> bool:
    """Whether a step could be claimed since the last commit, or a worker had it.

    A delay between attempts is waiting.
    """
    if not step.original:
        return False
    status, wake_at = step.original[_STEP_STATUS], step.original[_WAKE_AT]
    if is_leased(status, step.original[_WAITING_ON], wake_at):
        return True
    if status != StepStatus.PENDING:
        return False
    return wake_at is not None and wake_at <= now and step.original[_ATTEMPT] == 1
