"""Raising a budget lets a whole family of tasks go on; `Operator.pause_family` holds it.

Each task of the family is changed in a transaction of its own: what holds is the budget's row, and a
task that is asked too early or too late only asks again.
"""

from contextlib import suppress

from agent.store.engine import lineage
from agent.tasks.errors import NotFoundError, RefusedError
from agent.tasks.operator.operator import Answer, Operator, resume_task
from agent.tasks.operator.state_table import COMMANDS
from agent.tasks.rules import budgets


def raise_budget(
    operator: Operator,
    task_id: str,
    *,
    step: str | None = None,
    tokens: int | None = None,
    microusd: int | None = None,
    seconds: float | None = None,
) -> Answer:
    """Set the limits of a task's budget, or of one of its steps', and go on if it was paused."""
    resumed = 0
    with operator.changing(task_id) as (tx, locked):
        cell = COMMANDS["budget"][locked.task.status]
        if cell.effect == "refuse":
            raise RefusedError(f"the task does not take 'budget': {cell.message}")
        if step is not None and step not in locked.graph.index_of:
            raise NotFoundError(f"the task has no step called {step!r}")
        if step is not None and not locked.graph.steps[locked.graph.index_of[step]].budget:
            raise RefusedError(f"step {step!r} has no budget of its own: the task's holds for it")
        if tokens is not None or microusd is not None:
            budgets.raise_limits(tx, locked, step, tokens, microusd)
        if seconds is not None and step is not None:
            if not (locked.graph.steps[locked.graph.index_of[step]].budget or {}).get(
                "time_seconds"
            ):
                raise RefusedError(f"step {step!r} has no time of its own: the task's holds for it")
            if budgets.raise_step_time(tx, locked, step, seconds) <= locked.now:
                raise RefusedError("so much time has passed since the step started already")
        elif seconds is not None and budgets.raise_time(tx, locked, seconds) <= locked.now:
            raise RefusedError("so much time has passed since the task started already")
        below = lineage.below(tx, task_id)
    # Twice: a family that is being paused meanwhile is paused only while its witness still is.
    for each in (*below, task_id, *below):
        with suppress(NotFoundError, RefusedError), operator.changing(each) as (tx, locked):
            if budgets.is_paused_for_budget(tx, locked):
                resume_task(tx, locked)
                resumed += 1
    return Answer(True, "budget set, and resumed" if resumed else "budget set", task_id)
