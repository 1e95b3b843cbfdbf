"""Workflows as tools: those with `on: mcp: true`, by their inputs and their description."""

from dataclasses import dataclass
from typing import Any, Final

from agent.mcp.api_calls import Api, ApiRequest
from agent.mcp.questions import path
from agent.mcp.route_tools import JsonSchema
from agent.mcp.task_waits import WAIT_SECONDS
from agent.workflows.compile.inputs import inputs_schema
from agent.workflows.graph import Graph

_WAIT: Final = "wait_seconds"
_MAX_CACHED: Final = 500


@dataclass(frozen=True, slots=True)
class WorkflowTool:
    """A workflow that clients may start as a tool."""

    name: str
    workflow: str
    title: str
    description: str
    input_schema: JsonSchema

    def split(self, arguments: dict[str, Any]) -> tuple[dict[str, Any], float]:
        """Return the workflow's inputs, and how long to wait; an input called like that wins."""
        if _WAIT not in self.input_schema["properties"] or self._has_own_wait:
            return arguments, 0.0
        inputs = {name: value for name, value in arguments.items() if name != _WAIT}
        return inputs, float(arguments.get(_WAIT, 0))

    @property
    def _has_own_wait(self) -> bool:
        return self.input_schema["properties"][_WAIT] is not WAIT_SECONDS


class WorkflowTools:
    """The workflows that are tools, each read once per version."""

    def __init__(self) -> None:
        self._tools: dict[tuple[str, int], WorkflowTool] = {}

    async def list(self, api: Api) -> list[WorkflowTool]:
        """Return the tools that there are now."""
        listed = await api.call(ApiRequest("GET", "/api/v1/workflows"))
        return [
            await self._tool(api, entry)
            for entry in listed["workflows"]
            # An agent of an earlier version has none.
            if entry.get("tool") is not None
        ]

    async def _tool(self, api: Api, entry: dict[str, Any]) -> WorkflowTool:
        key = (entry["name"], entry["version"])
        tool = self._tools.get(key)
        # A workflow that was removed and added again may have the same number and other content.
        if tool is None or tool.name != entry["tool"]:
            document = await api.call(
                ApiRequest("GET", path("/api/v1", "workflows", entry["name"]))
            )
            tool = _tool_of(entry["tool"], Graph.model_validate(document["graph"]))
            if len(self._tools) >= _MAX_CACHED:
                self._tools.clear()
            self._tools[key] = tool
        return tool


def _tool_of(name: str, graph: Graph) -> WorkflowTool:
    schema = inputs_schema(graph)
    schema["properties"].setdefault(_WAIT, WAIT_SECONDS)
    return WorkflowTool(
        name=name,
        workflow=graph.name,
        title=graph.name,
        description=graph.description or f"Run the workflow {graph.name}.",
        input_schema=schema,
    )
