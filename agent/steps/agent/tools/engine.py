"""The engine as tools: see tasks, workflows, schedules and watchers; start, pause, resume, cancel.

There is no tool that answers an approval, sends a signal, resolves a call or raises a budget: those are
decisions of people.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from agent.steps.agent.tool import AgentTool, StartRun, ToolRefusedError, ToolRun, text_schema
from agent.steps.agent.tools.service_calls import ServiceRun, required
from agent.steps.attempt.context import StepContext
from agent.steps.attempt.services import AgentStep, EngineService
from agent.steps.spec.agent_config import EngineTool
from agent.steps.types.outcome import Json

EngineFunction = Callable[[EngineService, EngineTool, dict[str, Json], AgentStep], Json]
"""Takes the service, the definition, the tool's arguments, and who uses it."""

_TASK: Final = "the task's id, or its end, as a list shows it"
_LISTS: Final = ("tasks", "workflows", "schedules", "watchers")
_STATUSES: Final = (
    "pending", "running", "waiting", "paused", "succeeded", "failed", "canceled",
)  # fmt: skip
_LIST_SCHEMA: Final[dict[str, Json]] = {
    "type": "object",
    "properties": {
        "what": {"type": "string", "enum": list(_LISTS)},
        "status": {"type": "string", "enum": list(_STATUSES), "description": "of tasks"},
        "workflow": {"type": "string", "description": "only tasks of this workflow"},
        "limit": {"type": "integer", "minimum": 1, "maximum": 50, "description": "of tasks"},
    },
    "required": ["what"],
    "additionalProperties": False,
}
_START_SCHEMA: Final[dict[str, Json]] = {
    "type": "object",
    "properties": {
        "workflow": {"type": "string"},
        "inputs": {"type": "object", "description": "as the list of workflows describes them"},
    },
    "required": ["workflow"],
    "additionalProperties": False,
}
_REASON_SCHEMA: Final[dict[str, Json]] = {
    "type": "object",
    "properties": {
        "task": {"type": "string", "description": _TASK},
        "reason": {"type": "string", "description": "for people"},
    },
    "required": ["task"],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True)
class _Verb:
    description: str
    schema: dict[str, Json]
    function: EngineFunction
    acts: bool


def make_tools(name: str, config: EngineTool) -> list[AgentTool]:
    """Return a tool for each verb that the definition allows."""
    tools = []
    for verb_name in config.allow:
        verb = _VERBS[verb_name]
        start = _start(config, verb, config.max_starts if verb_name == "start" else None)
        tools.append(
            AgentTool(
                f"{name}_{verb_name}",
                verb.description,
                verb.schema,
                _yes if verb.acts else _no,
                start,
                on_unknown="retry",
                # `approve` of the definition concerns tools that act.
                approve=None if verb.acts else "never",
            )
        )
    return tools


def _yes(_: dict[str, Json]) -> bool:
    return True


def _no(_: dict[str, Json]) -> bool:
    return False


def _start(config: EngineTool, verb: _Verb, most: int | None) -> StartRun:
    uses = 0

    def start(arguments: dict[str, Json], context: StepContext) -> ToolRun:
        nonlocal uses
        uses += 1
        if most is not None and uses > most:
            raise ToolRefusedError(f"this step may start {most} tasks, and has")
        engine = required(context.services.engine, "engine")
        return ServiceRun(lambda by: verb.function(engine, config, arguments, by), context)

    return start


def _list(
    engine: EngineService, config: EngineTool, arguments: dict[str, Json], _: AgentStep
) -> Json:
    match arguments["what"]:
        case "tasks":
            return engine.list_tasks(
                config.workflows,
                arguments.get("status"),
                arguments.get("workflow"),
                arguments.get("limit", 20),
            )
        case "workflows":
            return engine.list_workflows(config.workflows)
        case "schedules":
            return engine.list_triggers(config.workflows, "schedule")
    return engine.list_triggers(config.workflows, "watch")


def _show(
    engine: EngineService, config: EngineTool, arguments: dict[str, Json], _: AgentStep
) -> Json:
    return engine.show_task(config.workflows, arguments["task"])


def _begin(
    engine: EngineService, config: EngineTool, arguments: dict[str, Json], by: AgentStep
) -> Json:
    return engine.start(config.workflows, arguments["workflow"], arguments.get("inputs") or {}, by)


def _pause(
    engine: EngineService, config: EngineTool, arguments: dict[str, Json], by: AgentStep
) -> Json:
    return engine.pause(config.workflows, arguments["task"], arguments.get("reason"), by)


def _resume(
    engine: EngineService, config: EngineTool, arguments: dict[str, Json], by: AgentStep
) -> Json:
    return engine.resume(config.workflows, arguments["task"], by)


def _cancel(
    engine: EngineService, config: EngineTool, arguments: dict[str, Json], by: AgentStep
) -> Json:
    return engine.cancel(config.workflows, arguments["task"], arguments.get("reason"), by)


_VERBS: Final = {
    "list": _Verb(
        "List tasks (the newest first), workflows with their inputs, schedules or watchers.",
        _LIST_SCHEMA,
        _list,
        acts=False,
    ),
    "show": _Verb(
        "Show what a task is doing or how it ended.", text_schema(task=_TASK), _show, acts=False
    ),
    "start": _Verb(
        "Start a workflow as a task of its own. Returns at once: show tells how it goes.",
        _START_SCHEMA,
        _begin,
        acts=True,
    ),
    "pause": _Verb("Pause a task: nothing new starts in it.", _REASON_SCHEMA, _pause, acts=True),
    "resume": _Verb("Resume a paused task.", text_schema(task=_TASK), _resume, acts=True),
    "cancel": _Verb("Cancel a task: it ends now.", _REASON_SCHEMA, _cancel, acts=True),
}
"""Every verb. None decides for a person: see `agent.steps.spec.agent_config.EngineVerb`."""
