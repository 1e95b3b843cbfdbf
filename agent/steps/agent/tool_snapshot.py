"""What a model was shown of tools that are described elsewhere: put on record once, then kept.

A workflow of its own or a server's tool may change while a step runs or waits. The loop goes on with
what it was shown first: no change elsewhere can add a tool to it, or give one another form.
"""

from dataclasses import dataclass

from agent.steps.agent.tools import mcp, workflows
from agent.steps.agent.tools.mcp_sessions import Sessions
from agent.steps.attempt.context import StepContext
from agent.steps.spec.agent_config import AgentConfig, ToolConfig
from agent.steps.types.call_types import Call, Request
from agent.steps.types.outcome import Json


@dataclass(frozen=True, slots=True)
class ToolSnapshot:
    """One tool as it was described when the step began."""

    name: str
    description: str
    schema: dict[str, Json]


async def shown(
    config: AgentConfig, context: StepContext, sessions: Sessions
) -> dict[str, list[ToolSnapshot]]:
    """Return the tools that are described elsewhere, by the tool of the definition they belong to."""
    wanted = {
        name: tool for name, tool in config.tools.items() if tool.allowed and tool.is_elsewhere
    }
    if not wanted:
        return {}

    async def look(_: Call) -> Json:
        return {name: await _described(tool, context, sessions) for name, tool in wanted.items()}

    body = {name: tool.place for name, tool in wanted.items()}
    seconds = context.services.limits.call_seconds
    request = Request("tools", body, "retry", seconds, is_effect=False)
    answer = await context.perform(request, look)
    return {
        name: [ToolSnapshot(**each) for each in found] for name, found in answer.response.items()
    }


async def _described(
    tool: ToolConfig, context: StepContext, sessions: Sessions
) -> list[dict[str, Json]]:
    if tool.mcp is not None:
        return await mcp.described(tool.mcp, context, sessions)
    assert tool.workflow is not None
    return [workflows.described(tool.workflow, context)]
