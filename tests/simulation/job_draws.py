"""Draws workflows whose steps run as jobs or in processes of the pool, and what becomes of each."""

import random
from typing import Any

JsonObject = dict[str, Any]

FIRST_SEED = 200
"""Seeds before it have no jobs: tests rely on what happens in them."""
WORDS = (
    *("ok", "ok", "ok", "slow", "slow", "fail", "final", "refused", "never", "late start"),
    *("late start", "twice", "twice", "unheard launch", "die at once", "die", "die", "stall"),
    *("stall", "late end"),
)
"""What becomes of a job, one word for each launch; afterwards it is `ok`."""


PROCESS_WORDS = ("ok", "ok", "crash", "crash", "crash first", "hang", "spoiled")
"""What a process of the pool does with a function, one word for each call; afterwards it is `ok`."""


def has_jobs(seed: int) -> bool:
    """Whether the scenario of a seed has jobs."""
    return seed >= FIRST_SEED and seed % 4 == 3


def draw_jobs(seed: int) -> tuple[list[JsonObject], list[JsonObject], JsonObject]:
    """Return workflows, submissions, and what happens to jobs and to their store."""
    chance = random.Random(f"jobs {seed}")
    graphs = [_graph(chance, f"job{number}") for number in range(2)]
    submissions = [
        {
            "at": round(chance.uniform(0, 20), 3),
            "graph": f"job{chance.randrange(2)}",
            "key": f"job-{number}",
            "by": chance.choice(["worker", "operator"]),
        }
        for number in range(chance.randint(2, 5))
    ]
    outages = [
        [round(chance.uniform(1, 35), 3), chance.choice([0.5, 3.0, 10.0])]
        for _ in range(chance.choice([0, 1, 1, 2]))
    ]
    plan = [chance.choice(WORDS) for _ in range(chance.randint(8, 20))]
    words = [chance.choice(PROCESS_WORDS) for _ in range(chance.randint(4, 12))]
    return graphs, submissions, {"plan": plan, "outages": outages, "processes": words}


def _graph(chance: random.Random, name: str) -> JsonObject:
    steps = [_step(chance, index) for index in range(chance.randint(1, 3))]
    return {"name": name, "steps": steps, "inputs": {"line": {"default": ""}}}


def _step(chance: random.Random, index: int) -> JsonObject:
    config: JsonObject = {"call": "tests.simulation.functions:once"}
    step: JsonObject = {
        "name": f"j{index}",
        "kind": "python",
        "config": config,
        "executor": {"name": chance.choice(["job", "job", "process"])},
        "retry": {"max_attempts": chance.choice([2, 4, 8]), "delay_seconds": 0.5},
    }
    if chance.random() < 0.6:
        config["effect"] = "once"
    if index and chance.random() < 0.6:
        step["depends_on"] = [f"j{index - 1}"]
    if chance.random() < 0.2:
        step["fanout"] = {"count": chance.randint(1, 3)}
    if chance.random() < 0.25:
        step["timeout_seconds"] = chance.choice([5.0, 15.0])
    return step
