"""Conversations on the simulated machine: every answer is appended once, in spite of kills and lost commits."""

from collections import Counter
from pathlib import Path

from tests.simulation.run import run
from tests.simulation.scenario import draw

SEEDS = (202, 206, 214, 222, 242)
LEAST = {"said: user": 12, "said: assistant": 12, "said: summary": 2, "person: forget": 1}


def test_every_answer_is_appended_once(sqlite_template: Path) -> None:
    """The checker finds each answer of a step that succeeded, without gaps; every task ends."""
    happened: Counter[str] = Counter()
    for seed in SEEDS:
        result = run(draw(seed), sqlite_template)
        assert result.problems == [], f"make simulate SEED={seed}"
        happened += result.happened
    seldom = {what: happened[what] for what, least in LEAST.items() if happened[what] < least}
    assert seldom == {}
