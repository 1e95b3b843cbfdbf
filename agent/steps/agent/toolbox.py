"""The tools of one step, made from its definition; a model can use no others."""

import json
import re
from collections import Counter
from dataclasses import replace

from agent.models.protocol import Tool, ToolUse
from agent.steps.agent.tool import AgentTool, ToolRefusedError, ToolSnapshot
from agent.steps.agent.tools import (
    engine,
    files,
    functions,
    http,
    mcp,
    memory,
    shell,
    workflows,
)
from agent.steps.agent.tools.mcp_sessions import Sessions
from agent.steps.attempt.context import StepContext
from agent.steps.attempt.secrets import ValuePath
from agent.steps.spec.agent_config import AgentConfig, ToolConfig
from agent.steps.spec.output_checks import find_problem
from agent.steps.types.errors import DefiniteFailure
from agent.steps.types.outcome import Json

_MAX_ARGUMENT_BYTES = 1_048_576


class Toolbox:
    """The tools that a model may use; it counts uses, so that limits hold."""

    def __init__(
        self,
        config: AgentConfig,
        context: StepContext,
        snapshots: dict[str, list[ToolSnapshot]],
        sessions: Sessions,
    ) -> None:
        self._tools: dict[str, AgentTool] = {}
        self._uses: Counter[str] = Counter()
        # The first request names the tools, and must be the same in every attempt: a definition from the
        # database has its keys in the order of their names, one from a file in that of the file.
        for name, tool_config in sorted(config.tools.items()):
            if not tool_config.allowed:
                continue
            for tool in _tools_of(name, tool_config, context, snapshots.get(name, []), sessions):
                if tool.name in self._tools:
                    text = f"two tools are called {tool.name}"
                    raise DefiniteFailure(text, code="bad_config", kind="input", may_retry=False)
                self._tools[tool.name] = tool

    @property
    def descriptions(self) -> tuple[Tool, ...]:
        """The tools as the model sees them."""
        return tuple(
            Tool(tool.name, tool.description, tool.schema) for tool in self._tools.values()
        )

    def pick(self, use: ToolUse) -> AgentTool:
        """Return the tool that a model wants to use; raise `ToolRefusedError` if it may not."""
        # A model that knows the server writes its tool's own name, as in notes_search-all.
        tool = self._tools.get(use.name) or self._tools.get(mcp.plain_name(use.name))
        if tool is None:
            names = ", ".join(self._tools) or "none"
            raise ToolRefusedError(f"there is no tool {use.name!r}; there are: {names}")
        if not isinstance(use.arguments, dict):
            raise ToolRefusedError(_no_object(use.arguments))
        # Imported here: the library behind it is slow to import.
        from agent.workflows.compile.output_schema import without_costly_patterns

        for schema in (without_costly_patterns(tool.schema), tool.limits):
            problem = find_problem(use.arguments, schema, _MAX_ARGUMENT_BYTES)
            if problem is not None:
                raise ToolRefusedError(_of_arguments(problem.message))
        self._uses[tool.owner] += 1
        if tool.max_calls is not None and self._uses[tool.owner] > tool.max_calls:
            raise ToolRefusedError(f"{tool.owner} may be used {tool.max_calls} times, and was")
        return tool


def _no_object(arguments: Json) -> str:
    """Say why arguments that came as text cannot be used."""
    try:
        is_object = isinstance(json.loads(arguments), dict)
    except (TypeError, ValueError, RecursionError):
        is_object = False
    if not is_object:
        return "the arguments are not a JSON object"
    return (
        "the arguments cannot be stored: they hold a NUL character or half of a surrogate pair,"
        " or are nested too deeply; send them without"
    )


def _of_arguments(problem: str) -> str:
    """Reword the problem of an output as one of arguments."""
    of_output = "the output is not what the step's schema asks for"
    problem = problem.replace(of_output, "the arguments do not match the tool's schema", 1)
    return re.sub(r"\boutput(?=[:.\[]| is \d)", "arguments", problem)


def secret_paths_of(tool: AgentTool, context: StepContext) -> frozenset[ValuePath]:
    """Return where the definition of a tool names secrets, relative to the tool's own keys."""
    return frozenset(path[3:] for path in context.secret_paths if path[:2] == ("tools", tool.owner))


def _tools_of(
    name: str,
    config: ToolConfig,
    context: StepContext,
    snapshots: list[ToolSnapshot],
    sessions: Sessions,
) -> list[AgentTool]:
    """Return the tools that one key of the definition gives, with its limits."""
    policy = context.attempt_input.step.on_unknown
    return [
        replace(
            tool,
            owner=name,
            description=config.description or tool.description,
            approve=tool.approve or config.approve,
            limits=config.arguments,
            max_calls=config.max_calls,
            seconds=config.timeout,
            on_unknown=config.on_unknown or policy or tool.on_unknown,
        )
        for tool in _make_tools(name, config, context, snapshots, sessions)
    ]


def _make_tools(
    name: str,
    config: ToolConfig,
    context: StepContext,
    snapshots: list[ToolSnapshot],
    sessions: Sessions,
) -> list[AgentTool]:
    is_effect = config.effect != "none"
    if config.workflow is not None:
        return [workflows.make_tool(name, snapshot, is_effect=is_effect) for snapshot in snapshots]
    if config.mcp is not None:
        server = config.mcp.server
        return [
            mcp.make_tool(name, server, snapshot, sessions, is_effect=is_effect)
            for snapshot in snapshots
        ]
    if config.files is not None:
        return files.make_tools(name, config.files)
    if config.memory is not None:
        return memory.make_tools(name, config.memory, context.attempt_input.task.workflow)
    if config.engine is not None:
        return engine.make_tools(name, config.engine)
    if config.shell is not None:
        return [shell.make_tool(name, config.shell, is_effect=is_effect)]
    if config.http is not None:
        return [http.make_tool(name, config.http, is_effect=is_effect)]
    assert config.python is not None
    path = context.attempt_input.task.source_path
    return [functions.make_tool(name, config.python, path, is_effect=is_effect)]
