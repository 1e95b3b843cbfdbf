"""One budget whose row this transaction holds: whether a reservation fits, and advice if not."""

from typing import Final, NamedTuple

from agent.core.quick_classes.quick_dataclasses import dataclass
from agent.steps.types.call_records import Reservation
from agent.tasks.rules.budgets import dollars
from agent.workflows.durations import format_duration

_SMALLER_ANSWER: Final = "a smaller `max_tokens`"


class Shortage(NamedTuple):
    """Why a reservation does not fit into a budget."""

    message: str
    """The reason, with advice for a person."""
    command: str | None
    """The arguments of `agent` that raise the budget; None for a day's budget."""


@dataclass(slots=True)
class LockedBudget:
    """The limits of a budget, and how much of each is used or reserved.

    The amounts include the reservations of this transaction.
    """

    title: str
    policy: str
    """The effect of an exhausted budget: `pause` or `fail`."""
    command: str | None
    """The arguments of `agent` that raise the budget of a paused task; None for a day's budget."""
    tokens_limit: int | None = None
    microusd_limit: int | None = None
    ms_limit: int | None = None
    tokens: int = 0
    microusd: int = 0
    ms: int = 0
    task_id: str | None = None
    """The task that is paused with its children when the budget is exhausted."""
    source: str = "`budget` in the workflow"
    """Where the limits are set."""

    def add(self, reservation: Reservation) -> None:
        """Count a reservation."""
        self.tokens += reservation.tokens
        self.microusd += reservation.microusd or 0
        self.ms += reservation.ms

    def shortage(self, reservation: Reservation) -> Shortage | None:
        """Return why a reservation does not fit; None if it fits."""
        if self.tokens_limit is not None and self.tokens + reservation.tokens > self.tokens_limit:
            left = max(self.tokens_limit - self.tokens, 0)
            fits_alone = reservation.tokens <= self.tokens_limit
            advice = self._advice("--tokens N", _SMALLER_ANSWER, fits_alone=fits_alone)
            message = (
                f"{self.title} allows {self.tokens_limit} tokens, {left} are left, and the next"
                f" call may use up to {reservation.tokens}; {advice}"
            )
            return Shortage(message, self._raising("--tokens N"))
        cost = reservation.microusd or 0
        if self.microusd_limit is not None and self.microusd + cost > self.microusd_limit:
            left = max(self.microusd_limit - self.microusd, 0)
            fits_alone = cost <= self.microusd_limit
            advice = self._advice("--usd X", _SMALLER_ANSWER, fits_alone=fits_alone)
            message = (
                f"{self.title} allows {dollars(self.microusd_limit)}, {dollars(left)} is left, and"
                f" the next call may cost up to {dollars(cost)}; {advice}"
            )
            return Shortage(message, self._raising("--usd X"))
        if self.ms_limit is not None and self.ms + reservation.ms > self.ms_limit:
            left = max(self.ms_limit - self.ms, 0)
            fits_alone = reservation.ms <= self.ms_limit
            advice = self._advice("", "a shorter `timeout`", fits_alone=fits_alone)
            message = (
                f"{self.title} allows models {_duration(self.ms_limit)}, {_duration(left)} is left,"
                f" and the next call may take up to {_duration(reservation.ms)}, its timeout;"
                f" {advice}"
            )
            return Shortage(message, None)
        return None

    def _raising(self, option: str) -> str | None:
        return None if self.command is None else f"{self.command} {option}"

    def _advice(self, option: str, smaller: str, *, fits_alone: bool) -> str:
        """Return advice for a person.

        `option` raises a task's budget. `smaller` is what to change in the step if even a new day's
        whole budget does not hold the call.
        """
        if self.policy == "fail":
            return f"{self.source} sets it"
        if self.command is not None:
            return f"`agent {self._raising(option)}` raises it"
        if fits_alone:
            return f"it may go on tomorrow (`agent resume`); {self.source} sets it"
        return f"no day has room for it: give it {smaller}, or raise {self.source}"


def _duration(ms: int) -> str:
    return format_duration(ms / 1000)
