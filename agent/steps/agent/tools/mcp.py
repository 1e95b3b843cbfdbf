"""Tools of MCP servers: those that the step or the configuration lists, as they were shown first."""

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from agent.models.protocol import clean
from agent.models.response_parsing import plain
from agent.steps.agent.tool import AgentTool, CoroutineRun, ToolRun
from agent.steps.agent.tools.mcp_sessions import Sessions, is_lost, tools_of
from agent.steps.attempt.context import StepContext
from agent.steps.spec.agent_config import McpTool
from agent.steps.types.call_types import Call
from agent.steps.types.errors import DefiniteFailure
from agent.steps.types.outcome import Json

if TYPE_CHECKING:
    from mcp import Client

_MAX_DESCRIPTION: Final = 4000
_MAX_NAME: Final = 64
"""Of what providers of models take as a tool's name."""
_NO_NAME: Final = re.compile("[^A-Za-z0-9_]")


async def described(
    config: McpTool, context: StepContext, sessions: Sessions
) -> list[dict[str, Json]]:
    """Return what a model is shown of a server's tools; one that is not there fails the step."""
    from agent.workflows.compile.output_schema import find_schema_problem, without_costly_patterns

    found = await tools_of(sessions, config.server)
    shown = []
    for name in _chosen(config, context.services.mcp[config.server].tools, found):
        try:
            schema = plain(json.loads(json.dumps(found[name].input_schema)))
        except (ValueError, RecursionError) as problem:
            raise _bad(f"MCP server {config.server}: the schema of {name}: {problem}") from None
        wrong = find_schema_problem(without_costly_patterns(schema))
        if wrong is not None:
            raise _bad(f"MCP server {config.server}: the schema of {name}: {wrong[1]}")
        text = clean((found[name].description or name)[:_MAX_DESCRIPTION])
        shown.append({"name": name, "description": text, "schema": schema})
    return shown


def _chosen(config: McpTool, allowed: list[str], found: Mapping[str, Any]) -> list[str]:
    """Return the tools that a step may use, by the server's own names; refuse what cannot be."""
    server = config.server
    wanted = config.tools if config.tools is not None else allowed
    if not wanted:
        text = f"list which tools of MCP server {server} may be used; there are: "
        raise _bad(text + (", ".join(sorted(found)) or "none"))
    permitted = {_meant(server, name, found) for name in allowed}
    names = {name: _meant(server, name, found) for name in wanted}
    forbidden = [name for name, meant in names.items() if permitted and meant not in permitted]
    if forbidden:
        raise _bad(f"[mcp.{server}] in the configuration does not allow {', '.join(forbidden)}")
    missing = [name for name, meant in names.items() if meant not in found]
    if missing:
        known = ", ".join(sorted(found)) or "none"
        raise _bad(f"MCP server {server} has no tool {', '.join(missing)}; there are: {known}")
    taken: dict[str, str] = {}
    for meant in dict.fromkeys(names.values()):
        other = taken.setdefault(plain_name(meant), meant)
        if other != meant:
            raise _bad(
                f"the tools {other} and {meant} of MCP server {server} have the same name for a"
                f" model, which is shown {plain_name(meant)}; list one of them"
            )
    return list(taken.values())


def _meant(server: str, name: str, found: Mapping[str, Any]) -> str:
    """Return the server's own name of a tool that may be written as a model is shown it."""
    if name in found:
        return name
    alike = [each for each in found if plain_name(each) == plain_name(name)]
    if len(alike) > 1:
        raise _bad(f"MCP server {server}: {name} may be {' or '.join(sorted(alike))}; write which")
    return alike[0] if alike else name


def plain_name(name: str) -> str:
    """Return a name as every provider of models takes it: what is no letter or digit becomes _."""
    return _NO_NAME.sub("_", name)


def offer(
    owner: str,
    config: McpTool,
    name: str,
    description: str,
    schema: dict[str, Json],
    sessions: Sessions,
    *,
    is_effect: bool,
) -> AgentTool:
    """Return one tool of a server."""

    def start(arguments: dict[str, Json], context: StepContext) -> ToolRun:
        async def perform(call: Call) -> Json:
            return await _use(sessions, config.server, name, arguments)

        return CoroutineRun(perform)

    return AgentTool(
        _name(owner, name), description, schema, lambda _: is_effect, start, on_unknown="ask"
    )


async def _use(sessions: Sessions, server: str, name: str, arguments: dict[str, Json]) -> Json:
    async def call(client: "Client") -> Any:
        return await client.call_tool(name, arguments)

    try:
        result = await sessions.ask(server, call)
    except Exception as problem:
        if isinstance(problem, DefiniteFailure) or is_lost(problem):
            raise
        # It answered that it would not: that is for the model.
        text = f"MCP server {server} answered with an error: {problem}"
        raise DefiniteFailure(text, may_retry=False) from problem
    text = _text(result)
    if result.is_error:
        raise DefiniteFailure(text, may_retry=False)
    return text


def _text(result: Any) -> str:
    """Write what a tool gave as text; what is none only by its kind."""
    parts = [_part(part) for part in result.content]
    if not parts and result.structured_content is not None:
        return json.dumps(result.structured_content, ensure_ascii=False)
    return "\n".join(parts)


def _part(part: Any) -> str:
    if part.type == "text":
        return str(part.text)
    if part.type == "resource" and hasattr(part.resource, "text"):
        return str(part.resource.text)
    if part.type == "resource_link":
        return f"[a link to {part.uri}]"
    return f"[{part.type}: it cannot be shown as text]"


def _name(owner: str, name: str) -> str:
    return f"{owner}_{plain_name(name)}"[:_MAX_NAME]


def _bad(text: str) -> DefiniteFailure:
    return DefiniteFailure(text, code="bad_config", kind="input", may_retry=False)
