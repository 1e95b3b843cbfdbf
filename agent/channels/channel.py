"""What a channel is: somewhere to tell people something, and perhaps to hear from them."""

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

from agent.steps.types.outcome import Json
from agent.store.channels.cursors import Place

Result = TypeVar("Result")

CLOSING_EVENTS: Final = frozenset({"approval.decided", "approval.expired", "approval.withdrawn"})
"""Events after which a question that was shown is no longer one."""


class DeliveryError(Exception):
    """A notification was not taken; the message is for a person and holds no secret.

    It is tried again for as long as it takes, unless `max_attempts` says that the other side has
    refused it for good.
    """

    def __init__(
        self,
        message: str,
        *,
        retry_after_seconds: float | None = None,
        max_attempts: int | None = None,
    ) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds
        self.max_attempts = max_attempts


class ReceiveError(Exception):
    """Nobody can be heard at the moment; the message is for a person and holds no secret."""

    def __init__(self, message: str, *, retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


def raise_most_retryable(problems: Sequence[DeliveryError]) -> None:
    """Raise what makes it worth another try, if anything does; else what does not."""
    for problem in sorted(problems, key=lambda each: each.max_attempts is not None):
        raise problem


async def run_to_end(work: Coroutine[Any, Any, Result]) -> Result:
    """Return what some work gives; who is cancelled meanwhile still waits for its end, once.

    What is half said when the daemon ends would be said again at the next start.
    """
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise


@dataclass(frozen=True, slots=True)
class Notification:
    """Something that people are to be told."""

    id: str
    """The same at every try, so that whoever gets it twice can tell."""
    event: str
    at: int
    place: Place | None
    """Where it stands in the event log; None for what was open before the channel was."""
    task: dict[str, Json] | None = None
    approval: dict[str, Json] | None = None
    outage: dict[str, Json] | None = None
    """What an event about a store outside the database tells."""


class Channel(Protocol):
    """One way to people."""

    name: str

    @property
    def events(self) -> Sequence[str]:
        """The events to be told of."""

    async def deliver(self, notification: Notification) -> None:
        """Tell people; raise `DeliveryError` unless everybody was told."""

    async def update(self, notification: Notification) -> None:
        """Bring what was shown of a question up to date: it has been decided."""

    async def receive(self) -> bool:
        """Take what comes next, waiting a while for it; False where nothing ever comes.

        Raises `ReceiveError` where nobody can be heard; it is then called again later.
        """

    async def close(self) -> None:
        """Let go of connections."""
