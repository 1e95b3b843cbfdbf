"""The tools of one step, as its definition has them: nothing else is ever used."""

import json
import re
from collections import Counter
from dataclasses import replace

from agent.models.protocol import Tool, ToolUse
from agent.steps.agent.tool import AgentTool, ToolRefusedError
from agent.steps.agent.tool_snapshot import ToolSnapshot
from agent.steps.agent.tools import files, functions, http, mcp, shell, workflows
from agent.steps.agent.tools.mcp_sessions import Sessions
from agent.steps.attempt.context import StepContext
from agent.steps.attempt.secrets import Place
from agent.steps.spec.agent_config import AgentConfig, ToolConfig
from agent.steps.spec.output_checks import find_problem
from agent.steps.types.errors import DefiniteFailure
from agent.steps.types.outcome import Json

_MAX_ARGUMENT_BYTES = 1_048_576


class Toolbox:
    """What a model may use; it counts uses, so that limits hold."""

    def __init__(
        self,
        config: AgentConfig,
        context: StepContext,
        shown: dict[str, list[ToolSnapshot]],
        sessions: Sessions,
    ) -> None:
        self._offers: dict[str, AgentTool] = {}
        self._used: Counter[str] = Counter()
        for name, tool in config.tools.items():
            if not tool.allowed:
                continue
            for offer in _offers(name, tool, context, shown.get(name, []), sessions):
                if offer.name in self._offers:
                    text = f"two tools are called {offer.name}"
                    raise DefiniteFailure(text, code="bad_config", kind="input", may_retry=False)
                self._offers[offer.name] = offer

    @property
    def described(self) -> tuple[Tool, ...]:
        """The tools as a model is told of them."""
        return tuple(
            Tool(offer.name, offer.description, offer.schema) for offer in self._offers.values()
        )

    def pick(self, use: ToolUse) -> AgentTool:
        """Return the tool that a model asks for; raise `ToolRefusedError` if it may not have it so."""
        # A model that knows the server writes its tool's own name, as in notes_search-all.
        offer = self._offers.get(use.name) or self._offers.get(mcp.plain_name(use.name))
        if offer is None:
            known = ", ".join(self._offers) or "none"
            raise ToolRefusedError(f"there is no tool {use.name!r}; there are: {known}")
        if not isinstance(use.arguments, dict):
            raise ToolRefusedError(_no_object(use.arguments))
        # Loaded here, as where outputs are checked.
        from agent.workflows.compile.output_schema import without_costly_patterns

        for schema in (without_costly_patterns(offer.schema), offer.limits):
            problem = find_problem(use.arguments, schema, _MAX_ARGUMENT_BYTES)
            if problem is not None:
                raise ToolRefusedError(_worded(problem.message))
        self._used[offer.owner] += 1
        if offer.max_calls is not None and self._used[offer.owner] > offer.max_calls:
            raise ToolRefusedError(f"{offer.owner} may be used {offer.max_calls} times, and was")
        return offer


def _no_object(arguments: Json) -> str:
    """Say why arguments that came as text cannot be used."""
    try:
        is_object = isinstance(json.loads(arguments), dict)
    except (TypeError, ValueError, RecursionError):
        is_object = False
    if not is_object:
        return "the arguments are no JSON object"
    return (
        "the arguments cannot be stored: they hold a NUL character or half of a surrogate pair,"
        " or are nested too deeply; send them without"
    )


def _worded(problem: str) -> str:
    """Say of arguments what was said of an output."""
    unlike = "the output is not what the step's schema asks for"
    problem = problem.replace(unlike, "the arguments are not what the tool takes", 1)
    return re.sub(r"\boutput(?=[:.\[]| is \d)", "arguments", problem)


def places_of(offer: AgentTool, context: StepContext) -> frozenset[Place]:
    """Return where the definition of a tool names secrets, seen from the tool's own keys."""
    return frozenset(
        place[3:] for place in context.secret_places if place[:2] == ("tools", offer.owner)
    )


def _offers(
    name: str, tool: ToolConfig, context: StepContext, shown: list[ToolSnapshot], sessions: Sessions
) -> list[AgentTool]:
    is_effect = tool.effect != "none"
    if tool.workflow is not None:
        (one,) = shown
        made = [workflows.offer(name, one.name, one.description, one.schema, is_effect=is_effect)]
    elif tool.mcp is not None:
        made = [
            mcp.offer(
                name,
                tool.mcp,
                each.name,
                each.description,
                each.schema,
                sessions,
                is_effect=is_effect,
            )
            for each in shown
        ]
    elif tool.files is not None:
        made = files.offers(name, tool.files)
    elif tool.shell is not None:
        made = [shell.offer(name, tool.shell, is_effect=is_effect)]
    elif tool.http is not None:
        made = [http.offer(name, tool.http, is_effect=is_effect)]
    else:
        assert tool.python is not None
        path = context.claimed.task.source_path
        made = [functions.offer(name, tool.python, path, is_effect=is_effect)]
    policy = context.claimed.step.on_unknown
    return [
        replace(
            offer,
            owner=name,
            description=tool.description or offer.description,
            approve=tool.approve,
            limits=tool.arguments,
            max_calls=tool.max_calls,
            seconds=tool.timeout,
            on_unknown=tool.on_unknown or policy or offer.on_unknown,
        )
        for offer in made
    ]
