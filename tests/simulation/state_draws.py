"""Draws steps that read and write `state`, and what people do to its values."""

import random
from typing import Any

from agent.workflows.graph import Graph

JsonObject = dict[str, Any]

FIRST_SEED = 200
"""Seeds before it have no state: tests rely on what happens in them."""
_FUNCTIONS = "tests.simulation.functions"
_SECONDS = 40.0
_TOTAL = "{{ state.total | default(0) }}"


def has_state(seed: int) -> bool:
    """Whether the workflows of a seed use `state`."""
    return seed >= FIRST_SEED and seed % 4 == 2


def draw_state(seed: int, graphs: list[JsonObject], operations: list[JsonObject]) -> None:
    """Let some steps of all workflows count in one shared value, and keep one of their own."""
    chance = random.Random(f"state {seed}")
    for graph in graphs:
        graph["shared"] = ["total"]
        for step in graph["steps"]:
            if "fanout" not in step and chance.random() < 0.5:
                _count(chance, step)
        if chance.random() < 0.7:
            graph["steps"].append(_keep(chance, [step["name"] for step in graph["steps"]]))
        Graph.model_validate(graph)
    for _ in range(chance.choice([0, 0, 1, 3])):
        at = round(_SECONDS * chance.random() ** 2, 3)
        value = chance.choice([None, "by a person", {"nested": [1, 2]}])
        workflow = chance.choice(["flow0", "flow1"])
        operations.append(
            {"at": at, "do": "set state", "task": 0, "workflow": workflow, "value": value}
        )


def _count(chance: random.Random, step: JsonObject) -> None:
    step["set_state"] = {"total": "{{ state.total | default(0) + 1 }}"}
    step["reads_state"] = step["sets_from"] = ["total"]
    if chance.random() < 0.4:
        # No `set_state` reads it: the last one wins.
        step["set_state"]["own"] = "{{ task.id }} {{ output }}"


def _keep(chance: random.Random, before: list[str]) -> JsonObject:
    given = {"seen": _TOTAL, "rounds": chance.randint(1, 3), "seconds": chance.choice([0, 0.3])}
    step: JsonObject = {
        "name": "keep",
        "kind": "python",
        "config": {"call": f"{_FUNCTIONS}:keep", "with": given},
        "depends_on": [name for name in before if chance.random() < 0.3],
        "retry": {"max_attempts": chance.choice([3, 8]), "delay_seconds": 0.1},
        "reads_state": ["total"],
    }
    if chance.random() < 0.4:
        step["fanout"] = {"count": chance.randint(1, 3)}
    return step
