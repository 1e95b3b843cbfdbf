"""A messenger that keeps what it is given, and fails as a test tells it to."""

from collections.abc import Callable

from agent.steps.types.errors import DefiniteFailure, UnknownOutcomeError
from agent.steps.types.messages import Sending
from agent.steps.types.outcome import Json, StepError


class RecordingMessenger:
    """Sends nothing; `sent` is what arrived."""

    def __init__(self, *operators: str) -> None:
        self.names = list(operators)
        self.sent: list[Sending] = []
        self.failures: list[Exception | None] = []
        """What the next sendings raise; None lets one through."""
        self.on_send: Callable[[], object] = bool
        """Called before each sending."""

    async def operators(self) -> list[str]:
        """Return the operators."""
        return list(self.names)

    def split(self, channel: str, text: str, *, is_markdown: bool) -> tuple[list[str], str | None]:
        """Return a part for each paragraph."""
        return text.split("\n\n"), None

    async def send(self, sending: Sending) -> Json:
        """Take one part, or fail."""
        self.on_send()
        failure = self.failures.pop(0) if self.failures else None
        if failure is not None:
            raise failure
        self.sent.append(sending)
        return f"m{len(self.sent)}"

    async def aclose(self) -> None:
        """Nothing is open."""

    @property
    def arrived(self) -> list[tuple[str, str]]:
        """Who got what."""
        return [(str(each.recipient), each.part.text) for each in self.sent]


def unreachable(delay_seconds: float | None = None) -> DefiniteFailure:
    """Return the failure of a channel that cannot be reached."""
    return DefiniteFailure("not reached", code="unreachable", delay_seconds=delay_seconds)


def refused() -> DefiniteFailure:
    """Return the failure of a recipient that blocked the bot."""
    return DefiniteFailure("blocked", code="refused", may_retry=False)


def unheard() -> UnknownOutcomeError:
    """Return the failure of a request without an answer."""
    return UnknownOutcomeError(StepError("unknown_outcome", "unknown", "no answer"))
