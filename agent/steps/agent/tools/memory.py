"""Memories as tools: remember, recall and forget, in the scope that the definition names."""

from collections.abc import Callable
from typing import Final

from agent.steps.agent.tool import AgentTool, StartRun, ToolRun, text_schema
from agent.steps.agent.tools.service_calls import ServiceRun, required
from agent.steps.attempt.context import StepContext
from agent.steps.attempt.services import AgentStep, MemoryService
from agent.steps.spec.agent_config import MemoryTool
from agent.steps.types.outcome import Json

_REMEMBER: Final = (
    "Remember a text for later tasks. Write one fact a time, so that it makes sense by itself."
    " At most 4000 characters."
)
_RECALL: Final = (
    "Find what was remembered, by words; the beginning of a word is enough. The best matches come first."
    " Without a query: the newest."
)
_FORGET: Final = "Forget a memory that is wrong or no longer needed, by the id that recall gave."

MemoryFunction = Callable[[MemoryService, str, dict[str, Json], AgentStep], Json]
"""Takes the service, the scope, the tool's arguments, and who uses it."""


def make_tools(name: str, config: MemoryTool, workflow: str) -> list[AgentTool]:
    """Return the tools that the definition allows; a model cannot choose the scope."""
    scope = config.scope or f"workflow:{workflow}"
    limit = config.results

    def recall(memory: MemoryService, scope: str, arguments: dict[str, Json], _: AgentStep) -> Json:
        most = min(arguments.get("limit") or limit, limit)
        return [_shown(entry) for entry in memory.recall(scope, arguments.get("query") or "", most)]

    tools = {
        "remember": (_REMEMBER, text_schema(text="what to remember"), _remember),
        "recall": (_RECALL, _recall_schema(limit), recall),
        "forget": (_FORGET, _FORGET_SCHEMA, _forget),
    }
    return [
        AgentTool(
            f"{name}_{verb}",
            text,
            schema,
            # Its own notes are no effect on the outside world: no approval unless the definition asks.
            lambda _: False,
            _start(scope, function),
            on_unknown="retry",
            approve="never" if verb == "recall" else None,
        )
        for verb, (text, schema, function) in tools.items()
        if verb in config.allow
    ]


_FORGET_SCHEMA: Final[dict[str, Json]] = {
    "type": "object",
    "properties": {"id": {"type": "integer", "minimum": 1, "maximum": 2**53}},
    "required": ["id"],
    "additionalProperties": False,
}


def _recall_schema(limit: int) -> dict[str, Json]:
    return {
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "words; left out: the newest"},
            "limit": {"type": "integer", "minimum": 1, "maximum": limit},
        },
        "additionalProperties": False,
    }


def _start(scope: str, function: MemoryFunction) -> StartRun:
    def start(arguments: dict[str, Json], context: StepContext) -> ToolRun:
        memory = required(context.services.memory, "memory")
        return ServiceRun(lambda by: function(memory, scope, arguments, by), context)

    return start


def _remember(memory: MemoryService, scope: str, arguments: dict[str, Json], by: AgentStep) -> Json:
    return {"remembered": memory.remember(scope, arguments["text"], by)["id"]}


def _forget(memory: MemoryService, scope: str, arguments: dict[str, Json], by: AgentStep) -> Json:
    return {"forgotten": memory.forget(scope, arguments["id"], by)["id"]}


def _shown(memory: dict[str, Json]) -> dict[str, Json]:
    return {name: memory[name] for name in ("id", "text", "created_at")}
