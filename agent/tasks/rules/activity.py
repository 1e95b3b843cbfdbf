"""The activity of a task as an event: whether its steps run, or only wait.

Only tasks with steps for external workers have the event `task.activity_changed`: programs that
coordinate workers follow it. Other tasks would pay for it with each timer and each question.
"""

from agent.core.state_machine import StepStatus, TaskStatus
from agent.tasks.state.locked_task import WAKE_NOT_KNOWN, LockedTask
from agent.tasks.state.rows import TASK_COLUMNS


def note_change(locked: LockedTask) -> None:
    """Emit that a running task waits from now on, or goes on."""
    task = locked.task
    if not task.original or task.status != TaskStatus.RUNNING:
        return
    before = dict(zip(TASK_COLUMNS, task.original, strict=True))
    if before["status"] != TaskStatus.RUNNING:
        return
    was_due = before["next_wake_time"] not in (None, WAKE_NOT_KNOWN)
    is_ready = was_due and before["next_wake_time"] <= locked.now
    was_waiting = before["steps_running"] == 0 and not is_ready
    is_waiting = task.steps_running == 0 and not _has_ready(locked)
    if was_waiting != is_waiting:
        activity = "waiting" if is_waiting else "running"
        locked.emit("task.activity_changed", None, {"activity": activity})


def _has_ready(locked: LockedTask) -> bool:
    return any(
        step.status == StepStatus.PENDING
        and step.wake_at is not None
        and step.wake_at <= locked.now
        for step in locked.steps.values()
    )
