"""Draws workflows with steps for external workers, and what those workers do."""

import random
from typing import Any

JsonObject = dict[str, Any]

FIRST_SEED = 200
"""Seeds before it have no external workers: tests rely on what happens in them."""
LEASE_SECONDS = 5.0
START_SECONDS = 8.0
QUEUES = ("simulated", "other")
WORDS = (
    *("ok", "ok", "ok", "twice", "late", "late", "vanish", "vanish", "begin and vanish"),
    *("begin and vanish", "fail", "final", "release", "give back", "ask", "slow", "again"),
    *("next", "next", "next lost", "next and vanish"),
)
"""What a worker does with its work, one word for each claim; afterwards it is `ok`."""


def has_workers(seed: int) -> bool:
    """Whether the scenario of a seed has external workers."""
    return seed >= FIRST_SEED and seed % 4 == 1


def draw_workers(seed: int) -> tuple[list[JsonObject], list[JsonObject], list[JsonObject]]:
    """Return workflows, submissions and external workers."""
    chance = random.Random(f"workers {seed}")
    graphs = [_graph(chance, f"work{number}") for number in range(2)]
    submissions = [
        {
            "at": round(chance.uniform(0, 15), 3),
            "graph": f"work{chance.randrange(2)}",
            "key": f"work-{number}",
            "by": chance.choice(["worker", "operator"]),
        }
        for number in range(chance.randint(3, 6))
    ]
    workers: list[JsonObject] = [
        {
            "queues": sorted(chance.sample(QUEUES, chance.choice([1, 2, 2]))),
            "plan": [chance.choice(WORDS) for _ in range(chance.randint(6, 14))],
        }
        for _ in range(chance.randint(1, 3))
    ]
    # One comes when the faults are over, and does what is left.
    workers.append({"queues": list(QUEUES), "plan": [], "is_last": True})
    return graphs, submissions, workers


def _graph(chance: random.Random, name: str) -> JsonObject:
    steps = [_step(chance, index) for index in range(chance.randint(1, 3))]
    graph: JsonObject = {"name": name, "steps": steps, "inputs": {"line": {"default": ""}}}
    if chance.random() < 0.3:
        graph["fail_fast"] = False
    if chance.random() < 0.2:
        graph["timeout_seconds"] = chance.choice([20.0, 60.0])
    return graph


def _step(chance: random.Random, index: int) -> JsonObject:
    config: JsonObject = {
        "queue": chance.choice(QUEUES),
        "with": {"line": "{{ inputs.line }}"},
        "lease": LEASE_SECONDS,
        "start_within": START_SECONDS,
    }
    step: JsonObject = {"name": f"w{index}", "kind": "worker", "config": config}
    if chance.random() < 0.5:
        config["effect"] = "once"
        step["on_unknown"] = chance.choice(["ask", "ask", "fail", "retry"])
    if index and chance.random() < 0.6:
        step["depends_on"] = [f"w{index - 1}"]
    if chance.random() < 0.25:
        step["fanout"] = {"count": chance.randint(1, 4)}
    if chance.random() < 0.2:
        step["timeout_seconds"] = chance.choice([4.0, 12.0])
    attempts = chance.choice([1, 2, 4, 8])
    step["retry"] = {"max_attempts": attempts, "delay_seconds": 0.5}
    return step
