"""One tool of an `agent` step: its description for the model, its limits, and how a use of it runs."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from agent.steps.attempt.context import StepContext
from agent.steps.attempt.recorded_calls.calls import Prepare
from agent.steps.types.call_types import Call
from agent.steps.types.outcome import Json

Approve = Literal["always", "first", "never"]


@dataclass(frozen=True, slots=True)
class ToolContent:
    """The answer of a tool besides text, or a question instead of an answer."""

    text: str
    parts: list[dict[str, Json]]
    """Images and other binary content, each with its `type`, its `mime` type and its `data` in base64."""
    asks: dict[str, Json] | None = None
    """Questions by their keys, which a person must answer before the tool can."""


class ToolRun(ABC):
    """One allowed use of a tool."""

    prepare: Prepare | None = None
    """Runs before the use is recorded."""
    has_own_record: bool = False
    """Whether the use happens once however often it is requested, because it is recorded elsewhere."""

    answers: Mapping[str, Json] = MappingProxyType({})
    """A person's answers to the tool, by the keys of its questions."""

    @abstractmethod
    async def perform(self, call: Call) -> "Json | ToolContent":
        """Use the tool; raise `DefiniteFailure` if nothing happened."""

    async def close(self) -> None:  # noqa: B027 - most leave nothing
        """Leave nothing behind, however the use ended."""


class CoroutineRun(ToolRun):
    """A use of a tool that is one coroutine function."""

    def __init__(self, function: Callable[[Call], Awaitable[Json]]) -> None:
        self._function = function

    async def perform(self, call: Call) -> Json:
        """Call the function."""
        return await self._function(call)


class ToolRefusedError(Exception):
    """A use that is not allowed; the model gets the reason."""


StartRun = Callable[[dict[str, Json], StepContext], ToolRun]


@dataclass(frozen=True, slots=True)
class ToolSnapshot:
    """A tool of a workflow or an MCP server, as it was described when the step began."""

    name: str
    description: str
    schema: dict[str, Json]


@dataclass(frozen=True, slots=True)
class AgentTool:
    """A tool that a model may use."""

    name: str
    description: str
    schema: dict[str, Json]
    is_effect: Callable[[dict[str, Json]], bool]
    """Whether a use with these arguments acts on the outside world."""
    start: StartRun
    """Starts a use; raises `ToolRefusedError` for arguments that are not allowed."""
    on_unknown: str
    """The policy for an effect whose result was never recorded, if neither tool nor step sets one."""
    owner: str = ""
    """The key under `tools` in the definition that it belongs to."""
    approve: Approve | None = None
    limits: dict[str, Json] | None = None
    """A JSON Schema that its arguments must meet besides its own."""
    max_calls: int | None = None
    seconds: float | None = None


def text_schema(**properties: str) -> dict[str, Json]:
    """Return the schema of an object whose properties are texts, all of them required."""
    return {
        "type": "object",
        "properties": {
            name: {"type": "string", "description": text} for name, text in properties.items()
        },
        "required": list(properties),
        "additionalProperties": False,
    }
