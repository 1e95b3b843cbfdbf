"""A tool as it is offered to a model: what it takes, how far it may be used, and how it is used."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

from agent.steps.attempt.context import StepContext
from agent.steps.types.call_types import Call, Process
from agent.steps.types.outcome import Json

Approve = Literal["always", "first", "never"]


class ToolRun(ABC):
    """One use of a tool that was allowed; `prepare` is for what comes before it is on record."""

    prepare: Callable[[], Awaitable[Process | None]] | None = None
    has_own_record: bool = False
    """Whether what it asks for happens once however often it is asked for."""

    @abstractmethod
    async def perform(self, call: Call) -> Json:
        """Do it; raise `DefiniteFailure` if surely nothing was done."""

    async def close(self) -> None:  # noqa: B027 - most leave nothing
        """Leave nothing behind, however it ended."""


class ToolRefusedError(Exception):
    """A use that is not allowed; the model is told why."""


StartRun = Callable[[dict[str, Json], StepContext], ToolRun]


@dataclass(frozen=True, slots=True)
class AgentTool:
    """One tool."""

    name: str
    description: str
    schema: dict[str, Json]
    is_effect: Callable[[dict[str, Json]], bool]
    """Whether a use with these arguments acts on the world."""
    start: StartRun
    """Begins a use; raises `ToolRefusedError` for arguments that are not allowed."""
    on_unknown: str
    """What follows an effect of which nobody knows, where neither tool nor step says."""
    owner: str = ""
    """The tool of the definition that it belongs to; set with the keys of that."""
    approve: Approve | None = None
    limits: dict[str, Json] | None = None
    max_calls: int | None = None
    seconds: float | None = None


class CoroutineRun(ToolRun):
    """ToolRun that is one coroutine function."""

    def __init__(self, function: Callable[[Call], Awaitable[Json]]) -> None:
        self._function = function

    async def perform(self, call: Call) -> Json:
        """Call the function."""
        return await self._function(call)


def text_schema(**properties: str) -> dict[str, Json]:
    """Return the schema of an object whose properties are texts, all of which must be given."""
    return {
        "type": "object",
        "properties": {
            name: {"type": "string", "description": text} for name, text in properties.items()
        },
        "required": list(properties),
        "additionalProperties": False,
    }
