"""Tools of MCP servers: those that the step or the configuration lists, as they were described first."""

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from pydantic import ValidationError

from agent.models.protocol import clean
from agent.models.response_parsing import to_plain_json
from agent.steps.agent.tool import AgentTool, ToolContent, ToolRun, ToolSnapshot
from agent.steps.agent.tools.mcp_calls import Progress, call_tool
from agent.steps.agent.tools.mcp_sessions import Sessions, is_lost, tools_of
from agent.steps.attempt.context import StepContext
from agent.steps.spec.agent_config import McpTool
from agent.steps.types.call_types import Call
from agent.steps.types.errors import DefiniteFailure
from agent.steps.types.outcome import Json

if TYPE_CHECKING:
    from mcp import Client

_MAX_DESCRIPTION: Final = 4000
_MAX_PROBLEMS: Final = 3
_MAX_NAME: Final = 64
"""The longest tool name that providers of models accept."""
_NOT_IN_NAMES: Final = re.compile("[^A-Za-z0-9_]")


async def describe(
    config: McpTool, context: StepContext, sessions: Sessions
) -> list[dict[str, Json]]:
    """Return the descriptions of a server's tools; a tool that does not exist fails the step."""
    from agent.workflows.compile.output_schema import find_schema_problem, without_costly_patterns

    tools = await tools_of(sessions, config.server)
    descriptions = []
    for name in _chosen(config, context.services.mcp[config.server].tools, tools):
        try:
            schema = to_plain_json(json.loads(json.dumps(tools[name].input_schema)))
        except (ValueError, RecursionError) as error:
            raise _bad(f"MCP server {config.server}: the schema of {name}: {error}") from None
        fault = find_schema_problem(without_costly_patterns(schema), is_foreign=True)
        if fault is not None:
            raise _bad(f"MCP server {config.server}: the schema of {name}: {fault[1]}")
        text = clean((tools[name].description or name)[:_MAX_DESCRIPTION])
        descriptions.append({"name": name, "description": text, "schema": schema})
    return descriptions


def _chosen(config: McpTool, allowed: list[str], tools: Mapping[str, Any]) -> list[str]:
    """Return the tools that a step may use, by the server's own names."""
    server = config.server
    listed = config.tools if config.tools is not None else allowed
    known = ", ".join(sorted(tools)) or "none"
    if not listed:
        raise _bad(f"list which tools of MCP server {server} may be used; there are: {known}")
    permitted = {_own_name(server, name, tools) for name in allowed}
    names = {name: _own_name(server, name, tools) for name in listed}
    forbidden = [name for name, own in names.items() if permitted and own not in permitted]
    if forbidden:
        raise _bad(f"[mcp.{server}] in the configuration does not allow {', '.join(forbidden)}")
    missing = [name for name, own in names.items() if own not in tools]
    if missing:
        raise _bad(f"MCP server {server} has no tool {', '.join(missing)}; there are: {known}")
    return _distinct(server, list(dict.fromkeys(names.values())))


def _distinct(server: str, names: list[str]) -> list[str]:
    """Return names that a model can tell apart; refuse two that it would see as the same."""
    by_plain_name: dict[str, str] = {}
    for name in names:
        other = by_plain_name.setdefault(plain_name(name), name)
        if other != name:
            raise _bad(
                f"the tools {other} and {name} of MCP server {server} have the same name for a"
                f" model, which is shown {plain_name(name)}; list one of them"
            )
    return names


def _own_name(server: str, name: str, tools: Mapping[str, Any]) -> str:
    """Return the server's own name of a tool that may be written as the model sees it."""
    if name in tools:
        return name
    alike = [tool for tool in tools if plain_name(tool) == plain_name(name)]
    if len(alike) > 1:
        raise _bad(f"MCP server {server}: {name} may be {' or '.join(sorted(alike))}; write which")
    return alike[0] if alike else name


def plain_name(name: str) -> str:
    """Return a name as every provider of models accepts it: other than letters and digits become _."""
    return _NOT_IN_NAMES.sub("_", name)


def make_tool(
    owner: str, server: str, tool: ToolSnapshot, sessions: Sessions, *, is_effect: bool
) -> AgentTool:
    """Return one tool of a server."""

    def start(arguments: dict[str, Json], context: StepContext) -> ToolRun:
        return _McpRun(sessions, server, tool.name, arguments, context)

    name = f"{owner}_{plain_name(tool.name)}"[:_MAX_NAME]
    return AgentTool(
        name, tool.description, tool.schema, lambda _: is_effect, start, on_unknown="ask"
    )


class _McpRun(ToolRun):
    """A use of a tool of a server; one that asks a person is used again with the answers."""

    def __init__(
        self,
        sessions: Sessions,
        server: str,
        name: str,
        arguments: dict[str, Json],
        context: StepContext,
    ) -> None:
        self._sessions = sessions
        self._server = server
        self._name = name
        self._arguments = arguments
        self._context = context

    async def perform(self, call: Call) -> Json | ToolContent:
        """Call the tool."""
        elicitations = self._sessions.elicitations(self._server)
        progress = Progress(self._context, f"{self._server}.{self._name}")

        async def send(client: "Client") -> ToolContent:
            return await call_tool(
                client, elicitations, progress, self._name, self._arguments, self.answers
            )

        try:
            return await self._sessions.request(self._server, send)
        except Exception as error:
            if isinstance(error, DefiniteFailure) or is_lost(error):
                raise
            if isinstance(error, ValidationError):
                # Its result has come, and is not as the protocol says: the tool may have acted.
                return ToolContent(_unreadable(error), [])
            # The server answered with an error, which is for the model.
            text = f"MCP server {self._server} answered with an error: {error}"
            raise DefiniteFailure(text, may_retry=False) from error


def _unreadable(error: ValidationError) -> str:
    problems = "; ".join(
        f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}"
        for problem in error.errors(include_url=False, include_context=False)[:_MAX_PROBLEMS]
    )
    return f"[the tool was used and has answered, but its result cannot be read: {problems}]"


def _bad(text: str) -> DefiniteFailure:
    return DefiniteFailure(text, code="bad_config", kind="input", may_retry=False)
