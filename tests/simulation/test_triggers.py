"""Schedules and watchers on the simulated machine: one fate for each instant and item, one task at most."""

from collections import Counter
from pathlib import Path

import pytest

from tests.simulation.run import run
from tests.simulation.scenario import draw
from tests.simulation.trigger_draws import FIRST_SEED

SEEDS = range(FIRST_SEED, FIRST_SEED + 64, 4)
SHARDS = 4
LEAST = {
    "firing: started": 20,
    "firing: skipped": 2,
    "poll: ok": 50,
}
"""What becomes of instants and items, and how often at least in the seeds of a shard."""


@pytest.mark.parametrize("shard", range(SHARDS))
def test_every_instant_and_every_item_has_one_fate(shard: int, sqlite_template: Path) -> None:
    """Kills, lost commits, jumping clocks and several workers lose none and start none twice."""
    happened: Counter[str] = Counter()
    for seed in SEEDS[shard::SHARDS]:
        result = run(draw(seed), sqlite_template)
        assert result.problems == [], f"make simulate SEED={seed}"
        happened += result.happened
    seldom = {what: happened[what] for what, least in LEAST.items() if happened[what] < least}
    assert seldom == {}


def test_a_seed_with_triggers_determines_its_run(sqlite_template: Path) -> None:
    """The same seed gives the same run, to the last event."""
    first, again = (run(draw(FIRST_SEED + 16), sqlite_template) for _ in range(2))
    assert first.happened["firing: started"] > 0
    assert first.digest == again.digest
