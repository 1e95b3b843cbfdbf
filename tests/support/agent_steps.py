"""`agent` steps whose model follows a script and whose tool is a workflow."""

import json
from typing import Any

from agent.models.registry import ModelRegistry
from agent.workflows.graph import Step
from tests.support.engine import NOW

MODELS = ModelRegistry(default="echo")


def uses(name: str, **arguments: Any) -> dict[str, Any]:
    """Return a turn of the script that asks for one tool."""
    return {"tool_uses": [{"name": name, "arguments": arguments}]}


def agent(*script: Any, workflow: str = "child", **options: Any) -> Step:
    """Return an agent that may run a workflow and follows a script."""
    tool = {"workflow": workflow, "approve": "never", **options.pop("tool", {})}
    config = {
        "goal": f"do it\n```echo\n{json.dumps(script)}\n```",
        "model": "echo",
        "tools": {"look": tool},
    }
    return Step(name="it", kind="agent", config=config, retry=NOW, **options)
