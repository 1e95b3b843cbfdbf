"""The activity of a task as an event: whether its steps run, or only wait.

Only tasks with steps for external workers have the event `task.activity_changed`: programs that
coordinate workers follow it. Other tasks would pay for it with each timer and each question.
"""

from typing import Final

from agent.core.state_machine import StepStatus, TaskStatus
from agent.tasks.state.locked_task import LockedTask
from agent.tasks.state.rows import STEP_COLUMNS, TASK_COLUMNS, StepRow

_TASK_STATUS: Final = TASK_COLUMNS.index("status")
_STEPS_RUNNING: Final = TASK_COLUMNS.index("steps_running")
_STEP_STATUS: Final = STEP_COLUMNS.index("status")
_WAKE_AT: Final = STEP_COLUMNS.index("wake_at")
_ATTEMPT: Final = STEP_COLUMNS.index("attempt")


def note_change(locked: LockedTask) -> None:
    """Emit that a running task waits from now on, or goes on."""
    task = locked.task
    if not task.original or task.status != TaskStatus.RUNNING:
        return
    if task.original[_TASK_STATUS] != TaskStatus.RUNNING:
        return
    steps, now = locked.steps.values(), locked.now
    was_waiting = task.original[_STEPS_RUNNING] == 0 and not any(
        _was_ready(step, now) for step in steps
    )
    is_waiting = task.steps_running == 0 and not any(_is_ready(step, now) for step in steps)
    if was_waiting != is_waiting:
        activity = "waiting" if is_waiting else "running"
        locked.emit("task.activity_changed", None, {"activity": activity})


def _is_ready(step: StepRow, now: int) -> bool:
    return step.status == StepStatus.PENDING and step.wake_at is not None and step.wake_at <= now


def _was_ready(step: StepRow, now: int) -> bool:
    """Whether a step could be claimed since the last commit; a delay between attempts is waiting."""
    if not step.original or step.original[_STEP_STATUS] != StepStatus.PENDING:
        return False
    wake_at = step.original[_WAKE_AT]
    return wake_at is not None and wake_at <= now and step.original[_ATTEMPT] == 1
