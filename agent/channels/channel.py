"""The interface of a channel: it delivers notifications, and may receive messages."""

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

from agent.core.chat_origin import ChatOrigin
from agent.steps.types.outcome import Json
from agent.store.channels.cursors import LogPosition

Result = TypeVar("Result")

CLOSING_EVENTS: Final = frozenset({"approval.decided", "approval.expired", "approval.withdrawn"})
"""Events after which an approval can no longer be answered."""


class DeliveryError(Exception):
    """A notification was not accepted; the message is for a person and holds no secret.

    The delivery is retried without limit, unless `max_attempts` is set: the other side has rejected
    it for good.
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
    """A channel cannot receive at the moment; the message is for a person and holds no secret."""

    def __init__(self, message: str, *, retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


def raise_most_retryable(problems: Sequence[DeliveryError]) -> None:
    """Raise an error that is worth a retry, if there is one; else another one, if any."""
    for problem in sorted(problems, key=lambda problem: problem.max_attempts is not None):
        raise problem


async def run_to_end(work: Coroutine[Any, Any, Result]) -> Result:
    """Await work; a cancellation takes effect once the work is complete.

    A message that was half sent when the daemon stopped would be sent again at the next start.
    """
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise


@dataclass(frozen=True, slots=True)
class Notification:
    """The notification of a channel about one event."""

    id: str
    """The same at every attempt, so that a receiver can drop repetitions."""
    event: str
    at: int
    position: LogPosition | None
    """The event's position in the log; None for an approval older than the channel."""
    task: dict[str, Json] | None = None
    approval: dict[str, Json] | None = None
    outage: dict[str, Json] | None = None
    """The data of an event about an artifact store."""
    trigger: dict[str, Json] | None = None
    """The data of an event about a schedule or a watcher."""
    origin: ChatOrigin | None = None
    """Where in a chat the task was started."""
    upkeep: dict[str, Json] | None = None
    """The data of an event about disk space or backups."""
    started_by: Json = None
    """The trigger of its task, which decides the task's trace."""
    paired: dict[str, Json] | None = None
    """The account that was paired, as its channel and identity."""


class Channel(Protocol):
    """One way to reach people or a program."""

    name: str

    @property
    def events(self) -> Sequence[str]:
        """The types of events to deliver."""

    @property
    def reports_ends(self) -> bool:
        """Whether tasks that were started in this channel report their ends there."""

    async def deliver(self, notification: Notification) -> None:
        """Deliver to every recipient; raise `DeliveryError` unless all of them have it."""

    async def update(self, notification: Notification) -> None:
        """Show the decision in the messages that show its question."""

    async def receive(self) -> bool:
        """Wait a while for messages and handle them; False if this channel never receives any.

        Raises `ReceiveError` where receiving fails; it is then called again later.
        """

    async def close(self) -> None:
        """Close the connections."""
