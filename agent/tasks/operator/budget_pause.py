"""Raising a budget resumes a whole family of tasks; `Operator.pause_family` pauses it.

Each task of the family is changed in a transaction of its own: the budget's row decides, and a
task that is resumed too early is paused again by its next call.
"""

from contextlib import suppress

from agent.core.clock import SECOND
from agent.core.state_machine import TaskStatus
from agent.store.db.database import Connection
from agent.store.engine import budget_rows as store
from agent.store.engine import lineage
from agent.tasks.errors import NotFoundError, RefusedError
from agent.tasks.operator import state_table
from agent.tasks.operator.operator import CommandResult, Operator, resume_task
from agent.tasks.rules import budgets
from agent.tasks.state.locked_task import LockedTask
from agent.workflows.durations import format_duration


def raise_budget(
    operator: Operator,
    task_id: str,
    *,
    step: str | None = None,
    tokens: int | None = None,
    microusd: int | None = None,
    seconds: float | None = None,
) -> CommandResult:
    """Set the limits of a task's budget, or of one of its steps', and go on if it was paused."""
    with operator.changing(task_id) as (tx, locked):
        state_table.check("budget", locked.task.status)
        if step is not None:
            _check_step(locked, step, has_time=seconds is not None)
        if tokens is not None or microusd is not None:
            budgets.raise_limits(tx, locked, step, tokens, microusd)
        if seconds is not None:
            _raise_time(tx, locked, step, seconds)
        descendants = lineage.below(tx, task_id)
        was_paused = locked.task.status == TaskStatus.PAUSED
    is_resumed = False
    # Twice: a family that is being paused meanwhile is paused only while its witness still is.
    for member in (*descendants, task_id, *descendants):
        is_resumed |= _resume(operator, member)
    amounts = [f"{tokens:,} tokens"] if tokens is not None else []
    amounts += [budgets.dollars(microusd)] if microusd is not None else []
    amounts += [format_duration(seconds)] if seconds is not None else []
    done = f"budget set to {' and '.join(amounts)}"
    if is_resumed:
        return CommandResult(True, f"{done}, and resumed", task_id)
    stays = f"; the task stays paused: `agent resume {task_id[-8:]}`" if was_paused else ""
    return CommandResult(True, f"{done}{stays}", task_id)


def _check_step(locked: LockedTask, step: str, *, has_time: bool) -> None:
    index = locked.graph.index_of.get(step)
    if index is None:
        raise NotFoundError(f"the task has no step called {step!r}")
    budget = locked.graph.steps[index].budget
    if not budget:
        raise RefusedError(f"step {step!r} has no budget of its own: the task's holds for it")
    if has_time and not budget.get("time_seconds"):
        raise RefusedError(f"step {step!r} has no time of its own: the task's holds for it")


def _raise_time(tx: Connection, locked: LockedTask, step: str | None, seconds: float) -> None:
    if step is not None:
        deadline, what = budgets.raise_step_time(tx, locked, step, seconds), "step"
    else:
        deadline, what = budgets.raise_time(tx, locked, seconds), "task"
    if deadline <= locked.now:
        passed = (locked.now - deadline) // SECOND + int(seconds)
        raise RefusedError(
            f"the {what} started {format_duration(passed)} ago: the new time counts from its start"
            " and must be longer"
        )


def _resume(operator: Operator, task_id: str) -> bool:
    """Resume a task that is paused for a budget; return whether it was."""
    with suppress(NotFoundError, RefusedError), operator.changing(task_id) as (tx, locked):
        if store.is_paused_for_budget(tx, task_id):
            resume_task(tx, locked)
            return True
    return False
