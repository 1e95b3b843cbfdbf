"""Draws schedules, watchers, what their sources show, and what people do to them."""

import random
from typing import Any

JsonObject = dict[str, Any]

FIRST_SEED = 200
"""Seeds before it have no triggers: tests rely on what happens in them."""
_SHOWN_SECONDS = 40.0
_FUNCTIONS = "tests.simulation.functions"
OVERLAPS = ("skip", "queue", "queue_all", "cancel_other", "allow")


def has_triggers(seed: int) -> bool:
    """Whether the scenario of a seed has schedules and watchers."""
    return seed >= FIRST_SEED and seed % 4 == 0


def has_conversations(seed: int) -> bool:
    """Whether people talk to agents in the scenario of a seed."""
    return seed >= FIRST_SEED and seed % 4 == 2


def draw_triggers(seed: int) -> tuple[list[JsonObject], list[JsonObject], list[JsonObject]]:
    """Return workflows that start by themselves, what sources show, and what people do to triggers."""
    chance = random.Random(f"triggers {seed}")
    graphs: list[JsonObject] = []
    sources: list[JsonObject] = []
    operations: list[JsonObject] = []
    for number in range(chance.randint(1, 2)):
        name = f"fired{number}"
        schedules = [_schedule(chance, f"time{index}") for index in range(chance.randint(0, 2))]
        watchers = []
        if not schedules or chance.random() < 0.6:
            source = f"source{number}"
            watchers.append(_watcher(chance, source))
            sources.append(_source(chance, source))
        on = {"schedule": schedules, "watch": watchers}
        graphs.append({"name": name, "steps": _steps(chance), "inputs": {}, "on": on})
        ids = [f"{name}:{each['id']}" for each in (*schedules, *watchers)]
        operations += [_operation(chance, ids) for _ in range(chance.choice([0, 0, 1, 3]))]
    return graphs, sources, operations


def _schedule(chance: random.Random, name: str) -> JsonObject:
    schedule: JsonObject = {
        "id": name,
        "every_seconds": chance.choice([2.0, 4.0, 9.0]),
        "overlap": chance.choice(OVERLAPS),
        "catch_up": chance.choice(["none", "latest", "latest", "all"]),
        "most": chance.choice([1, 3]),
        "stagger_seconds": chance.choice([0.5, 3.0]),
    }
    if chance.random() < 0.3:
        schedule["jitter_seconds"] = chance.choice([1.0, 6.0])
    if chance.random() < 0.3:
        schedule["window_seconds"] = chance.choice([3.0, 100.0])
    if chance.random() < 0.3:
        schedule["overlap_ignores_waiting"] = True
    if chance.random() < 0.2:
        schedule["pause_after_failures"] = chance.choice([1, 3])
    return schedule


def _watcher(chance: random.Random, source: str) -> JsonObject:
    return {
        "id": "seen",
        "python": {"call": f"simulated:{source}"},
        "every_seconds": chance.choice([1.0, 3.0]),
        "timeout_seconds": 4.0,
        "first": chance.choice(["all", "all", "baseline", "latest"]),
        "per": chance.choice(["item", "item", "batch"]),
        "most": chance.choice([1, 20]),
        "overlap": chance.choice(["allow", "allow", *OVERLAPS]),
    }


def _source(chance: random.Random, name: str) -> JsonObject:
    """Draw the times at which items appear, and how the polls go, the first ones by this plan."""
    times = sorted(round(chance.uniform(0, _SHOWN_SECONDS), 3) for _ in range(chance.randint(0, 9)))
    words = ["ok", "ok", "ok", "slow", "error", "late"]
    return {
        "name": name,
        "items": times,
        # Everything again in each poll, or what its cursor has not passed.
        "mode": chance.choice(["everything", "since"]),
        "plan": [chance.choice(words) for _ in range(chance.randint(0, 8))],
    }


def _steps(chance: random.Random) -> list[JsonObject]:
    """Draw the steps of a task that starts often: short, and sometimes failing."""
    plan = chance.choice([[], [], ["error"], ["refused"]])
    given = {"plan": plan, "seconds": chance.choice([0.0, 0.3, 1.0, 3.0])}
    step: JsonObject = {
        "name": "work",
        "kind": "python",
        "config": {"call": f"{_FUNCTIONS}:touch", "with": given},
        "retry": {"max_attempts": 2, "delay_seconds": 0.2},
    }
    if chance.random() < 0.2:
        question = {"name": "ask", "kind": "approval", "config": {"message": "May I?"}}
        return [question, {**step, "depends_on": ["ask"]}]
    return [step]


def _operation(chance: random.Random, ids: list[str]) -> JsonObject:
    words = ["pause", "resume", "skip", "run", "edit", "remove", "restore"]
    at = round(_SHOWN_SECONDS * chance.random(), 3)
    return {"at": at, "do": chance.choice(words), "trigger": chance.choice(ids)}
