"""Fixtures of triggers: a database whose clock stands still until the test moves it."""

from collections.abc import Iterator

import pytest

from agent.store.db.database import Database
from tests.support.engine import find_violations
from tests.support.engine_fixtures import checked, engine, postgres_database, start  # noqa: F401
from tests.support.recorded_triggers import StillClock
from tests.support.trigger_bench import bench  # noqa: F401


@pytest.fixture
def clock() -> StillClock:
    """Return a clock that shows Monday noon."""
    return StillClock()


@pytest.fixture
def still(database: Database, clock: StillClock) -> Iterator[Database]:
    """Return a database on that clock; the checker must find nothing at the end."""
    database.clock = clock
    yield database
    assert find_violations(database) == []
