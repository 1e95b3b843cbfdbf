"""Commits of every golden task fail once, in every way: nothing is lost or doubled."""

import itertools
import random

import pytest

from agent.tasks.worker import failures
from tests.crash.faults import Way
from tests.crash.fresh_databases import Fresh, fresh  # noqa: F401  (a fixture by its name)
from tests.crash.shapes import SHAPES
from tests.crash.story import Story
from tests.support.effort import short_or_full

MOST_COMMITS = 200
"""Far more than any golden task needs: a story that goes on beyond it does not end."""
STRIDE = short_or_full(4, 1)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let workers retry sooner than they would: the faults here do not last."""
    monkeypatch.setattr(failures, "PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(failures, "FIRST_PAUSE_SECONDS", 0.01)


@pytest.mark.parametrize("way", Way, ids=lambda way: way.name.lower())
@pytest.mark.parametrize("name", SHAPES)
def test_a_fault_at_each_commit_on_sqlite(name: str, way: Way, fresh: Fresh) -> None:  # noqa: F811
    """Whichever commit fails, the task ends correctly, and each effect happens once.

    In short form a way fails every fourth commit, and the next ways and shapes the others.
    """
    first = 1 + (list(Way).index(way) + list(SHAPES).index(name)) % STRIDE
    for at in range(first, MOST_COMMITS, STRIDE):
        if not Story(fresh(), SHAPES[name], at, way).run():
            break
    else:
        raise AssertionError("it did not end")
    assert at > 3


@pytest.mark.parametrize("name", SHAPES)
def test_a_crash_during_recovery(name: str, fresh: Fresh) -> None:  # noqa: F811
    """It is recovered like any other crash."""
    ways = itertools.cycle([Way.DIED_AFTER, Way.DIED_BEFORE])
    happened = []
    for at in range(2, 7, short_or_full(2, 1)):
        later = [(1 + at % 3, next(ways)), (1 + at % 2, next(ways))]
        happened.append(Story(fresh(), SHAPES[name], at, next(ways)).run(*later))
    assert any(happened)


@pytest.mark.parametrize("way", Way, ids=lambda way: way.name.lower())
def test_a_fault_at_some_commits_on_postgresql(way: Way, postgres_url: str) -> None:
    """The same holds on PostgreSQL, for a sample."""
    chance = random.Random(way.name)
    happened = [
        Story(postgres_url, shape, at, way).run()
        for shape in SHAPES.values()
        for at in chance.sample(range(1, len(shape.steps) + 6), short_or_full(1, 2))
    ]
    assert any(happened)
