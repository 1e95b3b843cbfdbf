"""External workers on the simulated machine: no work is lost, and none is given to two at once."""

from collections import Counter
from pathlib import Path

from tests.simulation.run import run
from tests.simulation.scenario import draw
from tests.simulation.work_draws import FIRST_SEED
from tests.support.effort import short_or_full

SEEDS = range(FIRST_SEED + 1, FIRST_SEED + 241, 4)
COUNTED = ("vanish", "begin and vanish", "late", "twice", "next", "next lost", "next and vanish")
"""What workers do: it must happen in the checked seeds."""
CHECKED_SEEDS = short_or_full([201, 205, 217, 261, 269], list(SEEDS))


def test_every_piece_of_work_is_done_by_one_worker(sqlite_template: Path) -> None:
    """Workers vanish, answer late and twice, daemons die, clocks jump: every task ends, once."""
    happened: Counter[str] = Counter()
    for seed in CHECKED_SEEDS:
        result = run(draw(seed), sqlite_template)
        assert result.problems == [], f"make simulate SEED={seed}"
        happened += result.happened
    for word in COUNTED:
        assert happened[f"external: {word}"] >= short_or_full(1, 5), word
