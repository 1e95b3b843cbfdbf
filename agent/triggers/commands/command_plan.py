"""The change of a command on a trigger, with its message: planned first, then applied."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from agent.core.clock import to_iso
from agent.store.db.database import Connection
from agent.store.engine.trigger_rows import TriggerRow
from agent.tasks.errors import RefusedError
from agent.tasks.rules.firings.trigger_update import FireResult, TriggerUpdate
from agent.triggers.schedules.instants import Timing
from agent.triggers.schedules.schedule_plan import timing_of

BY_OPERATOR: Final = "by the operator"


@dataclass(frozen=True, slots=True)
class TriggerResult:
    """The result of a command, for a person and for a program."""

    is_changed: bool
    message: str
    trigger_id: str
    tasks: list[str] = field(default_factory=list)
    instants: list[str] = field(default_factory=list)
    """The instants that it skipped, backfilled or would backfill, in UTC."""


@dataclass(slots=True)
class CommandPlan:
    """A planned command: the change, if there is one, and its message."""

    update: TriggerUpdate | None
    message: str
    instants: list[int] = field(default_factory=list)
    tasks: list[str] = field(default_factory=list)
    is_run: bool = False

    def result(self, trigger_id: str, fired: FireResult | None) -> TriggerResult:
        """Return the command's result; `fired` is None if it changed nothing."""
        tasks = self.tasks if fired is None else sorted(set(fired.started.values()))
        message = self.message
        if fired is not None and self.is_run and tasks:
            message = f"started as {tasks[0]}"
        instants = [to_iso(instant) or "" for instant in self.instants]
        return TriggerResult(fired is not None, message, trigger_id, tasks, instants)


Planner = Callable[[Connection, TriggerRow, int], CommandPlan]
"""Plans a command from the row as it is now; called again if the row changes before it is applied."""


def change(row: TriggerRow, values: dict[str, Any]) -> TriggerUpdate:
    """Return the update that writes columns of a trigger."""
    return TriggerUpdate(row.id, row.version, values=values)


def readable_timing(row: TriggerRow) -> Timing:
    """Return the times of a schedule, or refuse the command if they cannot be read."""
    try:
        return timing_of(row)
    except Exception as error:
        raise RefusedError(f"it cannot be read: {type(error).__name__}: {error}") from error


def counted(number: int, what: str) -> str:
    """Return a number with its noun."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"
