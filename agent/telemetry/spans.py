"""Ended spans, and where they go."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from agent.telemetry.trace_context import SpanContext

Attribute = str | bool | int | float | list[str]
SpanKind = Literal["internal", "client", "server", "producer"]


@dataclass(frozen=True, slots=True)
class EndedSpan:
    """One operation that has ended; instants are microseconds."""

    name: str
    context: SpanContext
    parent: SpanContext | None
    started_at: int
    ended_at: int
    kind: SpanKind = "internal"
    attributes: Mapping[str, Attribute | None] = field(default_factory=dict)
    """What is None is left out."""
    error: str | None = None
    """The message of an error, for people; a span without one is not marked."""
    links: tuple[SpanContext, ...] = ()


class SpanSink(Protocol):
    """Takes ended spans. It never raises and never waits."""

    sample_ratio: float
    """The share of tasks that are traced."""

    def emit(self, span: EndedSpan) -> None:
        """Take a span; any thread may call this."""

    def close(self) -> None:
        """Send what is left, for a bounded time."""
