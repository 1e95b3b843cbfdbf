"""Newer versions of simulated workflows: a person edits the file before a task is retried."""

import random
from typing import Any

from agent.workflows.graph import Graph
from tests.simulation.scenario import python_step


def newer(graph: Graph, number: int, chance: random.Random) -> Graph:
    """Return a workflow with one step more before all others, and perhaps with another step changed.

    Every step has another index in it.
    """
    document: dict[str, Any] = graph.model_dump(exclude_defaults=True)
    steps: list[dict[str, Any]] = document["steps"]
    if chance.random() < 0.4:
        _change(chance.choice(steps), chance)
    first = {"name": f"edited_{number}", **python_step("touch", {"plan": [], "seconds": 0.0})}
    document["steps"] = [first, *steps]
    return Graph.model_validate(document)


def _change(step: dict[str, Any], chance: random.Random) -> None:
    config = step["config"]
    if step["kind"] in ("approval", "input"):
        step["config"] = {**config, "message": f"{config['message']} Really?"}
    elif "policy" in config.get("with", {}) and chance.random() < 0.5:
        # The calls on record were made under the promise of the earlier one.
        step["config"] = {**config, "with": {**config["with"], "policy": "retry"}}
    elif "seconds" in config.get("with", {}):
        step["config"] = {**config, "with": {**config["with"], "seconds": 0.01}}
    else:
        step["timeout_seconds"] = 30.0
