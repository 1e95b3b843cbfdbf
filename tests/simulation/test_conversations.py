"""Conversations on the simulated machine: every answer is appended once, in spite of kills and lost commits."""

from collections import Counter
from pathlib import Path

import pytest

from agent.steps.agent import conversation
from agent.steps.attempt.context import StepContext
from agent.steps.types.conversation import Conversations, Entry
from tests.simulation.run import run
from tests.simulation.scenario import draw
from tests.simulation.trigger_draws import FIRST_SEED

SEEDS = range(FIRST_SEED + 2, FIRST_SEED + 42, 4)
LEAST = {"said: user": 25, "said: assistant": 25, "said: summary": 2, "person: forget": 1}


def test_every_answer_is_appended_once(sqlite_template: Path) -> None:
    """The checker finds each answer of a step that succeeded, without gaps; every task ends."""
    happened: Counter[str] = Counter()
    for seed in SEEDS:
        result = run(draw(seed), sqlite_template)
        assert result.problems == [], f"make simulate SEED={seed}"
        happened += result.happened
    seldom = {what: happened[what] for what, least in LEAST.items() if happened[what] < least}
    assert seldom == {}


def test_a_later_attempt_that_loads_again_is_found(
    sqlite_template: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step whose later attempt saw other entries would break its own record in one of a few seeds."""

    async def load_again(context: StepContext, rows: Conversations, name: str) -> list[Entry]:
        return await rows.entries(name, await rows.last_number(name))

    monkeypatch.setattr(conversation, "_load", load_again)
    problems: list[str] = []
    for seed in range(FIRST_SEED + 2, FIRST_SEED + 200, 4):
        problems += run(draw(seed), sqlite_template).problems
        if problems:
            break
    assert problems
