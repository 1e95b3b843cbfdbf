"""The protocol of connectors, and the words in which a model is asked and answers."""

from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from agent.core.ids import request_hash

Json = Any

StopReason = Literal["end", "stop", "max_tokens", "tool_use", "refusal", "context_exceeded"]
"""Why a model stopped: it was done, it met a stop text, it was cut, it wants tools, it declined,
or its context was full."""


@dataclass(frozen=True, slots=True)
class Tool:
    """Something that a model may ask for."""

    name: str
    description: str
    schema: dict[str, Json]
    """A JSON Schema of its arguments."""


@dataclass(frozen=True, slots=True)
class ToolUse:
    """A model's wish to use a tool."""

    id: str
    name: str
    arguments: Json
    """An object; or the text as it came, where it was no JSON object."""


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
    """Of an assistant's message: `Reply.native`, to be sent back exactly as it was said."""
    _digest: str = field(default="", init=False, repr=False, compare=False)

    @property
    def digest(self) -> str:
        """Its hash, made once: a conversation is hashed by its messages', however long it gets."""
        if not self._digest:
            uses = [[use.id, use.name, use.arguments] for use in self.tool_uses]
            made = request_hash([self.role, self.text, uses, self.tool_use_id])
            object.__setattr__(self, "_digest", made)
        return self._digest


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """What a model is asked."""

    messages: tuple[Message, ...]
    max_tokens: int
    system: str | None = None
    effort: str | None = None
    temperature: float | None = None
    stop: tuple[str, ...] = ()
    wants_json: bool = False
    schema: dict[str, Json] | None = None
    """A JSON Schema for the answer, given to providers that know structured output."""
    tools: tuple[Tool, ...] = ()


@dataclass(frozen=True, slots=True)
class Reply:
    """What a model answered."""

    text: str
    stop_reason: StopReason
    model: str
    """The model's name as the provider gives it."""
    tool_uses: tuple[ToolUse, ...] = ()
    tokens_in: int | None = None
    """None when the provider does not say."""
    tokens_out: int | None = None
    request_id: str | None = None
    native: Json = None
    """The answer in the provider's own form, named by its provider."""


class Connector(Protocol):
    """One provider's way of being asked; its failures are `ModelError`s."""

    async def complete(self, request: ModelRequest, seconds: float) -> Reply:
        """Ask once, waiting for at most so long, and return what the model answered."""

    async def aclose(self) -> None:
        """Close its connections."""


def clean(text: str) -> str:
    """Return a text without what no database keeps: NUL and lone surrogates."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")
