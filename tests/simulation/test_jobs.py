"""Jobs and processes on the simulated machine: they die and stall, and no effect happens twice."""

from collections import Counter
from pathlib import Path

from tests.simulation.job_draws import FIRST_SEED, PROCESS_WORDS, WORDS
from tests.simulation.run import run
from tests.simulation.scenario import draw
from tests.support.effort import short_or_full

SEEDS = range(FIRST_SEED + 3, FIRST_SEED + 243, 4)
CHECKED_SEEDS = short_or_full([211, 219, 235, 259, 355], list(SEEDS))
"""In 355 the answer of the store to a sign of life comes after the job's end."""


def test_an_effect_happens_once_whatever_becomes_of_its_process(sqlite_template: Path) -> None:
    """Jobs die, stall, begin late or twice; processes crash; agents and the store fail: every task ends."""
    happened: Counter[str] = Counter()
    for seed in CHECKED_SEEDS:
        result = run(draw(seed), sqlite_template)
        assert result.problems == [], f"make simulate SEED={seed}"
        happened += result.happened
    for word in set(WORDS):
        assert happened[f"job: {word}"] >= short_or_full(1, 5), word
    for word in set(PROCESS_WORDS):
        assert happened[f"process: {word}"] >= short_or_full(1, 5), word
