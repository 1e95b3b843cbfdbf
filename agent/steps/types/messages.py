"""The values of the `message` kind: recipients, parts, and the messenger that sends them."""

from dataclasses import dataclass
from typing import Final, Protocol

from agent.core.plain_json import Json
from agent.steps.types.attachment import Attachment

CHANNELS: Final = ("telegram", "slack", "terminal", "apprise")
"""The channels that a recipient can be named in, as in `telegram:123`."""


@dataclass(frozen=True, slots=True)
class Recipient:
    """One recipient: a channel, and the id that the channel knows it by."""

    channel: str
    id: str
    """Of Apprise: the reference to its address, as in `env:NAME`."""
    thread: str | None = None

    def __str__(self) -> str:
        return f"{self.channel}:{self.id}"


@dataclass(frozen=True, slots=True)
class MessagePart:
    """The part that one call sends: a text, or a file with an optional caption."""

    text: str
    is_markdown: bool = True
    attachment: Attachment | None = None


@dataclass(frozen=True, slots=True)
class Sending:
    """One call that sends: its recipient, its part, and the key that stays the same if it is repeated."""

    recipient: Recipient
    part: MessagePart
    key: str
    task_id: str | None
    """The task of the step that sends it; None for a notice that is about no task."""


class Messenger(Protocol):
    """Sends messages; `agent.channels.messages` implements it."""

    async def operators(self) -> list[str]:
        """Return the recipients that `operator` stands for, as in `telegram:1`."""

    def split(self, channel: str, text: str, *, is_markdown: bool) -> tuple[list[str], str | None]:
        """Return the parts of a text for a channel, and the rest for the caption of a file, if any."""

    async def send(self, sending: Sending) -> Json:
        """Send one part and return the channel's id of the message.

        Raise `DefiniteFailure` where it was certainly not sent, and `UnknownOutcomeError` where it
        may have been.
        """

    async def aclose(self) -> None:
        """Close the connections."""
