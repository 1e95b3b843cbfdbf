"""What the tests need of a chat's other side, whichever chat it is."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from agent.config.channels import ChannelSettings
from tests.support.engine import eventually


@dataclass
class Shown:
    """A message as a person sees it."""

    recipient: str
    reference: str
    text: str
    buttons: dict[str, str] = field(default_factory=dict)
    """The tokens by their labels."""
    thread: str | None = None
    """The thread or topic that it is in."""


@dataclass(frozen=True)
class SharedFile:
    """A file as a person gets it."""

    recipient: str
    name: str
    content: bytes
    thread: str | None = None


@dataclass(frozen=True)
class Failure:
    """How a call fails; a status of 0 closes the connection without a response."""

    status: int
    message: str = "no"
    retry_after: int | None = None


class Peer(Protocol):
    """A stand-in for a chat's service, and for the people who use it."""

    name: str
    messages: list[Shown]
    """All messages to all accounts, the oldest first."""
    files: list[SharedFile]
    """All files to all accounts, the oldest first."""
    toasts: list[str]
    """The immediate replies to pressed buttons."""

    def settings(self) -> ChannelSettings:
        """Return the configuration that names this stand-in."""

    def identity(self, number: int) -> str:
        """Return the id of a person."""

    def write(self, identity: str, text: str, answers: Shown | None = None) -> None:
        """Write as an account, perhaps in reply to a message."""

    def repeat(self) -> None:
        """Send the last message once more, as a service does without an acknowledgement."""

    def press(self, identity: str, token: str) -> None:
        """Press a button as an account."""

    def fail(self, what: str, *failures: Failure) -> None:
        """Let the next calls fail: `send`, `edit` or `receive`."""

    def goes_away(self, *, is_away: bool) -> None:
        """Stop to answer, or answer again."""

    def close(self) -> None:
        """End it."""


def shown_to(peer: Peer, identity: str, fits: Callable[[Shown], bool]) -> Shown:
    """Wait until an account has a message that fits, and return the newest."""
    return eventually(
        lambda: next(
            (each for each in reversed(peer.messages) if each.recipient == identity and fits(each)),
            None,
        ),
        lambda: f"{identity} sees {peer.messages}",
    ) or Shown("", "", "")


def received(peer: Peer, identity: str, words: str) -> Shown:
    """Wait until an account has a message with this text."""
    return shown_to(peer, identity, lambda each: words in each.text)
