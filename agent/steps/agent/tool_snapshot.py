"""The descriptions of tools that workflows and MCP servers define: recorded once, before the first turn.

A workflow or a server's tool may change while a step runs or waits. The loop goes on with what the
model was shown first: no change elsewhere can add a tool, or change the schema of one.
"""

from agent.steps.agent.tool import ToolSnapshot
from agent.steps.agent.tools import mcp, workflows
from agent.steps.agent.tools.mcp_sessions import Sessions
from agent.steps.attempt.context import StepContext
from agent.steps.spec.agent_config import AgentConfig, ToolConfig
from agent.steps.types.call_types import Call, Request
from agent.steps.types.outcome import Json


async def take_snapshots(
    config: AgentConfig, context: StepContext, sessions: Sessions
) -> dict[str, list[ToolSnapshot]]:
    """Return the tools that the definition does not describe itself, by their key under `tools`."""
    external = {
        name: tool for name, tool in config.tools.items() if tool.allowed and tool.is_external
    }
    if not external:
        return {}

    async def describe_all(_: Call) -> Json:
        return {name: await _describe(tool, context, sessions) for name, tool in external.items()}

    body = {name: tool.source for name, tool in external.items()}
    seconds = context.services.limits.call_seconds
    request = Request("tools", body, "retry", seconds, is_effect=False)
    answer = await context.perform(request, describe_all)
    return {
        name: [ToolSnapshot(**document) for document in documents]
        for name, documents in answer.response.items()
    }


async def _describe(
    tool: ToolConfig, context: StepContext, sessions: Sessions
) -> list[dict[str, Json]]:
    if tool.mcp is not None:
        return await mcp.describe(tool.mcp, context, sessions)
    assert tool.workflow is not None
    return [workflows.describe(tool.workflow, context)]
