"""Schedules and watchers on the simulated machine: one fate for each instant and item, one task at most."""

from collections import Counter
from pathlib import Path

import pytest

from agent.store.engine import trigger_rows
from agent.store.engine.trigger_rows import TriggerRow
from agent.tasks.rules.firings.trigger_update import TriggerUpdate
from agent.triggers.watch_runner import WatchRunner
from agent.triggers.watchers.source import Poll
from tests.simulation.run import run
from tests.simulation.scenario import draw
from tests.simulation.trigger_draws import FIRST_SEED
from tests.support.effort import short_or_full

SEEDS = range(FIRST_SEED + 4, FIRST_SEED + 52, 4)
SHARDS = short_or_full(2, 3)
CHECKED_SEEDS = SEEDS[: short_or_full(6, len(SEEDS))]
LEAST = {
    "firing: started": 10,
    "firing: skipped": 1,
    "poll: ok": 20,
}
"""What becomes of instants and items, and how often at least in the seeds of a shard."""


@pytest.mark.parametrize("shard", range(SHARDS))
def test_every_instant_and_every_item_has_one_fate(shard: int, sqlite_template: Path) -> None:
    """Kills, lost commits, jumping clocks and several workers lose none and start none twice."""
    happened: Counter[str] = Counter()
    for seed in CHECKED_SEEDS[shard::SHARDS]:
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


def test_a_cursor_that_is_written_early_is_found(
    sqlite_template: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill between the cursor and the items loses an item in one of a few seeds."""
    plan = WatchRunner._plan

    def write_early(runner: WatchRunner, row: TriggerRow, poll: Poll) -> TriggerUpdate:
        update = plan(runner, row, poll)
        with runner.database.connect("writer") as tx, tx.transaction():
            trigger_rows.update(tx, [(row.id, {"cursor": update.values["cursor"]})])
        return update

    monkeypatch.setattr(WatchRunner, "_plan", write_early)
    problems: list[str] = []
    for seed in range(FIRST_SEED + 4, FIRST_SEED + 200, 4):
        problems += run(draw(seed), sqlite_template).problems
        if any("has no fate" in problem for problem in problems):
            break
    assert any("has no fate" in problem for problem in problems)
