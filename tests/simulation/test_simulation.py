"""Runs of the engine on a simulated machine, and every failure that was ever found."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from agent.steps.attempt.recorded_calls.unknown_policy import UnknownPolicy
from tests.simulation.disk import COMMIT_FAULTS
from tests.simulation.run import run
from tests.simulation.scenario import Scenario, draw
from tests.simulation.shrinking import shrink
from tests.support.effort import short_or_full

SEEDS = short_or_full(44, 200)
COUNTED_SEEDS = short_or_full(range(24, 44), range(100))
"""What happens in these of them is counted as well. The short form has seeds with the rarer faults."""
OTHER_SEEDS = [seed for seed in range(SEEDS) if seed not in COUNTED_SEEDS]
SHARDS = 12
KEPT = sorted((Path(__file__).parent / "regressions").glob("*.json"))


@pytest.mark.parametrize("shard", range(SHARDS))
def test_every_task_ends_whatever_faults_occur(shard: int, sqlite_template: Path) -> None:
    """After the faults every task ends, the checker finds nothing, and no effect happened twice."""
    for seed in OTHER_SEEDS[shard::SHARDS]:
        problems = run(draw(seed), sqlite_template).problems
        assert problems == [], f"make simulate SEED={seed}"


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_earlier_failures_stay_fixed(path: Path, sqlite_template: Path) -> None:
    """Each scenario was a failure once, shrunk to what it needed."""
    assert run(Scenario.read(path), sqlite_template).problems == []


FAULTS = {
    "kill": 10,
    "end": 5,
    "stop": 10,
    "zombie came back": 10,
    "jump forward": 5,
    "jump back": 5,
    "delivered again": 10,
    "effect adrift": 10,
    "failure taken from the record": 3,
    "worker: wake-up lost": 5,
    "worker: slow": 10,
    "worker: connection lost": 20,
    "worker: torn": 5,
    "worker: busy": 10,
    **{f"worker: {way}": 2 for way in COMMIT_FAULTS},
    "worker: stopped after": 10,
    "command: connection lost": 10,
    "command: full": 5,
    "command: refused": 1,
    "command: lost unheard": 2,
    "person: pause": 5,
    "person: resume": 2,
    "person: cancel": 5,
    "person: retry": 5,
    "person: retry on the newest version": 3,
    "person: newest version refused": 1,
    "person: fork": 5,
    "person: signal": 5,
    "person: answer": 5,
    "person: saw another request": 3,
    "agent: remembered": 20,
    "agent: started": 20,
}
"""What happens on the simulated machine, and how often at least in the counted seeds of the full form.

A few seeds miss what is rare: the short form asks only for what is frequent.
"""


def test_every_fault_occurs_often_enough(sqlite_template: Path) -> None:
    """Counted are the faults that occurred: a drawn fault that never strikes proves nothing.

    Every task ends here too.
    """
    happened: Counter[str] = Counter()
    for seed in COUNTED_SEEDS:
        result = run(draw(seed), sqlite_template)
        assert result.problems == [], f"make simulate SEED={seed}"
        happened += result.happened
    expected = {what: short_or_full(least // 10, least) for what, least in FAULTS.items()}
    seldom = {what: happened[what] for what, least in expected.items() if happened[what] < least}
    assert seldom == {}


async def _repeat_blindly(*_: object) -> None:
    """Treat an unknown call as if it had never begun."""


def test_a_planted_defect_is_found(sqlite_template: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of a few seeds catches an engine that repeats unknown effects."""
    monkeypatch.setattr(UnknownPolicy, "apply", _repeat_blindly)
    problems = [
        problem for seed in range(10) for problem in run(draw(seed), sqlite_template).problems
    ]
    assert any("whose outcome is unknown" in problem for problem in problems)
    assert any("happened 2 times" in problem for problem in problems)


def test_a_failure_is_shrunk(sqlite_template: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Faults, operations, submissions and steps are removed as long as the scenario still fails."""
    monkeypatch.setattr(UnknownPolicy, "apply", _repeat_blindly)

    def fails(scenario: Scenario) -> bool:
        problems = run(scenario, sqlite_template).problems
        return any("whose outcome is unknown" in problem for problem in problems)

    whole = next(scenario for scenario in map(draw, range(10)) if fails(scenario))
    smaller = shrink(whole, fails, most_tries=short_or_full(30, 60))
    assert fails(smaller)
    assert len(smaller.text()) < len(whole.text()) / 2


def test_a_seed_determines_its_run(sqlite_template: Path) -> None:
    """The same seed gives the same run, to the last event; another one gives another."""
    first = run(draw(7), sqlite_template, is_traced=True)
    again = run(draw(7), sqlite_template, is_traced=True)
    assert first.trace
    assert first.trace == again.trace
    assert first.digest == again.digest != run(draw(8), sqlite_template).digest


def test_a_seed_gives_the_same_run_in_every_process(sqlite_template: Path) -> None:
    """Nothing depends on the order of sets, nor on earlier runs in the same process."""
    code = (
        "import sys; from pathlib import Path;"
        " from tests.simulation.run import run; from tests.simulation.scenario import draw;"
        " print([run(draw(seed), Path(sys.argv[1])).digest for seed in range(10, 12)])"
    )
    digests = set()
    for hash_seed in ("1", "2"):
        answer = subprocess.run(
            [sys.executable, "-c", code, str(sqlite_template)],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            cwd=Path(__file__).parent.parent.parent,
            capture_output=True,
            text=True,
            check=True,
        )
        digests.add(answer.stdout.strip())
    here = [run(draw(seed), sqlite_template).digest for seed in range(10, 12)]
    assert digests == {str(here)}
