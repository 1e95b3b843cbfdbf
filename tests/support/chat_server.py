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


@dataclass(frozen=True)
class Failure:
    """How a call is to fail; a status of 0 hangs up without a word."""

    status: int
    message: str = "no"
    retry_after: int | None = None


class Peer(Protocol):
    """A stand-in for a chat's service, and for the people who use it."""

    name: str
    messages: list[Shown]
    """All that is shown to anybody, the oldest first."""
    toasts: list[str]
    """What was said at once to who pressed a button."""

    def settings(self) -> ChannelSettings:
        """Return the configuration that names this stand-in."""

    def identity(self, number: int) -> str:
        """Return the id of a person."""

    def write(self, identity: str, text: str, answers: Shown | None = None) -> None:
        """Let somebody write, perhaps as an answer to a message."""

    def repeat(self) -> None:
        """Bring the last thing that was said once more, as a service does that got no answer."""

    def press(self, identity: str, token: str) -> None:
        """Let somebody press a button."""

    def fail(self, what: str, *failures: Failure) -> None:
        """Let the next calls fail: `send`, `edit` or `receive`."""

    def goes_away(self, *, is_away: bool) -> None:
        """Answer nobody, or everybody again."""

    def close(self) -> None:
        """End it."""


def shown_to(peer: Peer, identity: str, fits: Callable[[Shown], bool]) -> Shown:
    """Wait until somebody is shown a message that fits, and return the newest."""
    return eventually(
        lambda: next(
            (each for each in reversed(peer.messages) if each.recipient == identity and fits(each)),
            None,
        ),
        lambda: f"{identity} sees {peer.messages}",
    ) or Shown("", "", "")


def received(peer: Peer, identity: str, words: str) -> Shown:
    """Wait until somebody is shown a message with these words."""
    return shown_to(peer, identity, lambda each: words in each.text)
