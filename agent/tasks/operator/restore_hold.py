"""The pause of a task in a restored database, until a person resumes it.

A restored database has forgotten the effects that happened after its backup. A task that went on by
itself would repeat them, so a person decides about each.
"""

from contextlib import suppress

from agent.core.state_machine import TaskStatus
from agent.tasks.errors import NotFoundError, RefusedError
from agent.tasks.operator.operator import Operator
from agent.tasks.state import pauses, transitions
from agent.tasks.state.pauses import Pause, PauseKind


def hold_task(operator: Operator, task_id: str, reason: str) -> bool:
    """Hold a task that has not ended, whatever paused it before; return whether it is held.

    Its children are held by themselves. A task whose definition cannot be read runs no step.
    """
    pause = Pause(PauseKind.RESTORE, reason)
    with suppress(NotFoundError, RefusedError), operator.changing(task_id) as (_, locked):
        if locked.task.status == TaskStatus.RUNNING:
            transitions.pause_task(locked, pause)
        elif locked.task.status == TaskStatus.PAUSED:
            # A budget that is raised must not resume it.
            pauses.record(locked.task, pause)
        return locked.task.status == TaskStatus.PAUSED
    return False
