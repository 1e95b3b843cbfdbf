"""The protocol of connectors, and the values of a request to a model and of its reply."""

from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol

from agent.core.ids import request_hash

Json = Any

StopReason = Literal["end", "stop", "max_tokens", "tool_use", "refusal", "context_exceeded"]
"""Why a model stopped: it was done, it met a stop text, it was cut at `max_tokens`, it wants tools,
it declined, or its context was full."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool as the model sees it."""

    name: str
    description: str
    schema: dict[str, Json]
    """A JSON Schema of its arguments."""


@dataclass(frozen=True, slots=True)
class ToolUse:
    """A model's request to use a tool."""

    id: str
    name: str
    arguments: Json
    """An object; or the text as it came, if it was not a JSON object."""


@dataclass(frozen=True, slots=True)
class Image:
    """A picture in a message."""

    media_type: str
    """One of `IMAGE_TYPES`."""
    data: str
    """Its bytes in base64."""


IMAGE_TYPES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp")
"""Media types that every provider's models with vision accept."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation; `tool` messages answer a tool use."""

    role: Literal["user", "assistant", "tool"]
    text: str = ""
    tool_uses: tuple[ToolUse, ...] = ()
    tool_use_id: str | None = None
    is_error: bool = False
    """Of a tool's answer: whether the tool failed."""
    native: Json = None
    """Of an assistant's message: `Reply.native`, to be sent back unchanged."""
    images: tuple[Image, ...] = ()
    """Of a tool's answer: for models that can see."""
    _digest: str = field(default="", init=False, repr=False, compare=False)

    @property
    def digest(self) -> str:
        """Its hash, computed once: the hash of a conversation is made of the hashes of its messages."""
        if not self._digest:
            uses = [[use.id, use.name, use.arguments] for use in self.tool_uses]
            parts = [self.role, self.text, uses, self.tool_use_id]
            if self.images:
                # Only then: conversations on record keep their hashes.
                parts.append([[image.media_type, image.data] for image in self.images])
            digest = request_hash(parts)
            object.__setattr__(self, "_digest", digest)
        return self._digest


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """A request to a model."""

    messages: tuple[Message, ...]
    max_tokens: int
    system: str | None = None
    effort: str | None = None
    temperature: float | None = None
    stop: tuple[str, ...] = ()
    wants_json: bool = False
    schema: dict[str, Json] | None = None
    """A JSON Schema for the answer, for providers with structured output."""
    tools: tuple[Tool, ...] = ()


@dataclass(frozen=True, slots=True)
class Reply:
    """A model's reply."""

    text: str
    stop_reason: StopReason
    model: str
    """The model's name as the provider reports it."""
    tool_uses: tuple[ToolUse, ...] = ()
    tokens_in: int | None = None
    """None when the provider does not report it."""
    tokens_out: int | None = None
    request_id: str | None = None
    native: Json = None
    """The reply in the provider's own format, with the provider's name."""


class Connector(Protocol):
    """A connection to one model of a provider; its failures are `ModelError`s."""

    async def complete(self, request: ModelRequest, seconds: float) -> Reply:
        """Ask once, for at most this time, and return the reply."""

    async def aclose(self) -> None:
        """Close its connections."""


def clean(text: str) -> str:
    """Return a text without characters that no database stores: NUL and lone surrogates."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")
