"""State and conversations on the simulated machine: written once whatever happens, read as at the first claim."""

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
CHECKED_SEEDS = short_or_full((202, 206, 214, 222, 242), tuple(SEEDS))
"""The short form has the seeds with the most writes, answers and summaries."""
LEAST = {
    "state: written": short_or_full(20, 150),
    "said: user": 12,
    "said: assistant": 12,
    "said: summary": 2,
    "person: forget": 1,
}


def test_every_value_and_every_answer_is_written_once(sqlite_template: Path) -> None:
    """Kills, lost commits and several workers lose no write and no answer, and repeat none."""
    happened: Counter[str] = Counter()
    for seed in CHECKED_SEEDS:
        result = run(draw(seed), sqlite_template)
        assert result.problems == [], f"make simulate SEED={seed}"
        happened += result.happened
    seldom = {what: happened[what] for what, least in LEAST.items() if happened[what] < least}
    assert seldom == {}


def test_a_seed_with_state_determines_its_run(sqlite_template: Path) -> None:
    """The same seed gives the same run, to the last event."""
    first, again = (run(draw(FIRST_SEED + 10), sqlite_template) for _ in range(2))
    assert first.digest == again.digest


def _problems(template: Path, word: str, first: int = SEEDS.start) -> list[str]:
    """Return the problems of seeds with state from `first` on, up to the first that has this word."""
    found: list[str] = []
    for seed in range(first, SEEDS.stop, SEEDS.step):
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
    # The seeds before take time and do not show it.
    found = _problems(sqlite_template, "saw several values", first=242)
    assert any("saw several values" in problem for problem in found)
