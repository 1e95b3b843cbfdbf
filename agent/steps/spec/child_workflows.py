"""Which workflows the steps of a graph may start as child tasks."""

from collections.abc import Iterable
from typing import Any

from agent.workflows.graph import Step


def workflows_of(config: dict[str, Any]) -> list[str]:
    """Return the workflows that the tools of a step name in its definition."""
    tools = config.get("tools")
    configs = tools.values() if isinstance(tools, dict) else ()
    names = (tool.get("workflow") for tool in configs if isinstance(tool, dict))
    return [name for name in names if isinstance(name, str)]


def have_children(steps: Iterable[Step]) -> bool:
    """Whether some of a workflow's steps may run others as child tasks."""
    return any(
        step.kind == "workflow" or (step.kind == "agent" and workflows_of(step.config))
        for step in steps
    )
