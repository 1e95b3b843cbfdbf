"""Budgets of tasks and steps: the limits that a workflow sets, raising them, and pausing for them.

What calls reserve and use of these limits is counted in `budget_reservations`.
"""

from typing import Any, Final

from agent.core.clock import SECOND
from agent.core.money import MICROUSD
from agent.core.state_machine import TaskStatus
from agent.store.db.database import Connection
from agent.store.engine import budget_rows as store
from agent.store.engine import task_rows
from agent.tasks.state import transitions
from agent.tasks.state.locked_task import FamilyPause, LockedTask
from agent.tasks.state.pauses import Pause, PauseKind
from agent.workflows.graph import Graph

_REASON: Final = "budget: "
"""How the reason of such a pause begins: workers before schema 0006 know a budget's pause by it."""


def budget_pause(reason: str, command: str | None) -> Pause:
    """Return the pause for an exhausted budget; `command` raises it."""
    return Pause(PauseKind.BUDGET, _REASON + reason, command)


def pause(locked: LockedTask, why: Pause, budget_of: str | None = None) -> None:
    """Pause a running task for a budget, its own or an ancestor's; its family is paused after it."""
    task = locked.task
    if task.status == TaskStatus.RUNNING:
        transitions.pause_task(locked, why)
        locked.pauses.append(FamilyPause(budget_of or task.id, task.id, why))


def raise_limits(
    tx: Connection, locked: LockedTask, step: str | None, tokens: int | None, microusd: int | None
) -> None:
    """Set new limits for the budget of a task or of a step."""
    task = locked.task
    name, definition = task.id, locked.graph.budget
    if step is not None:
        index = locked.graph.index_of[step]
        name, definition = f"{task.id}/{index}", locked.graph.steps[index].budget
    store.ensure(tx, [[name, task.id, *limits_of(definition)]])
    store.set_limits(tx, name, tokens, microusd)
    data: dict[str, Any] = {"tokens": tokens, "microusd": microusd, "step": step}
    locked.emit("budget.raised", None, {key: value for key, value in data.items() if value})


def raise_time(tx: Connection, locked: LockedTask, seconds: float) -> int:
    """Set a new time limit for a task, counted from its start; return the deadline."""
    started_at = task_rows.started_at(tx, locked.task.id)
    locked.task.deadline = (started_at or locked.now) + int(seconds * SECOND)
    locked.emit("budget.raised", None, {"seconds": seconds})
    return locked.task.deadline


def raise_step_time(tx: Connection, locked: LockedTask, step: str, seconds: float) -> int:
    """Set a new time limit for a step, counted from its first start; return when that ends.

    The step's next attempt reads the limit from the last event.
    """
    started_at = store.step_started_at(tx, locked.task.id, locked.graph.index_of[step])
    locked.emit("budget.raised", None, {"seconds": seconds, "step": step})
    return (started_at or locked.now) + int(seconds * SECOND)


def pauses_when_time_is_over(graph: Graph) -> bool:
    """Whether a task pauses when its time is over; otherwise it fails."""
    budget = graph.budget
    return bool(budget and budget.get("time_seconds") and policy_of(budget) == "pause")


def policy_of(budget: dict[str, Any] | None) -> str:
    """Return what happens when a budget is exhausted: `pause` or `fail`."""
    return str((budget or {}).get("on_exhausted", "pause"))


def limits_of(budget: dict[str, Any] | None) -> tuple[int | None, int | None]:
    """Return the limits of tokens and money that a definition sets."""
    limits = budget or {}
    usd = limits.get("usd")
    return limits.get("tokens"), None if usd is None else round(usd * MICROUSD)


def dollars(microusd: int) -> str:
    """Return an amount of money as people write it."""
    text = f"{microusd / MICROUSD:.6f}".rstrip("0")
    whole, _, part = text.partition(".")
    return f"${whole}.{part.ljust(2, '0')}"
