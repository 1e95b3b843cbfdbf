"""`state` on the simulated machine: written once whatever happens, and read as at the first claim."""

from collections import Counter
from pathlib import Path

import pytest

from agent.store.engine import state_rows
from agent.tasks.rules.state_writes import LockedState
from tests.simulation.run import run
from tests.simulation.scenario import draw
from tests.simulation.state_draws import FIRST_SEED
from tests.support.effort import short_or_full

SEEDS = range(FIRST_SEED + 2, FIRST_SEED + 110, 4)
CHECKED_SEEDS = SEEDS[: short_or_full(9, len(SEEDS))]
SHARDS = short_or_full(1, 3)


@pytest.mark.parametrize("shard", range(SHARDS))
def test_every_value_is_written_once(shard: int, sqlite_template: Path) -> None:
    """Kills, lost commits and several workers lose no write and repeat none."""
    happened: Counter[str] = Counter()
    for seed in CHECKED_SEEDS[shard::SHARDS]:
        result = run(draw(seed), sqlite_template)
        assert result.problems == [], f"make simulate SEED={seed}"
        happened += result.happened
    assert happened["state: written"] >= short_or_full(20, 50)


def test_a_seed_with_state_determines_its_run(sqlite_template: Path) -> None:
    """The same seed gives the same run, to the last event."""
    first, again = (run(draw(FIRST_SEED + 10), sqlite_template) for _ in range(2))
    assert first.digest == again.digest


def _problems(template: Path, word: str) -> list[str]:
    """Return the problems of seeds with state, up to the first that has this word."""
    found: list[str] = []
    for seed in SEEDS:
        found += run(draw(seed), template).problems
        if any(word in problem for problem in found):
            break
    return found


def test_ignored_conflicts_are_found(
    sqlite_template: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine that overwrites what others wrote meanwhile miscounts in one of a few seeds."""
    monkeypatch.setattr(LockedState, "has_moved", lambda *_: False)
    found = _problems(sqlite_template, "and was written")
    assert any("the total is" in problem for problem in found)


def test_a_value_that_is_read_again_is_found(
    sqlite_template: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine whose later attempts read the current value is found in one of a few seeds."""
    text = state_rows._record_reads

    def read_again(sql: object) -> str:
        return text(sql).replace(" AND steps.state_read IS NULL", "")

    monkeypatch.setattr(state_rows, "_record_reads", read_again)
    found = _problems(sqlite_template, "saw several values")
    assert any("saw several values" in problem for problem in found)
