"""Fixtures of triggers: a database whose clock stands still until the test moves it."""

from collections.abc import Iterator

import psycopg
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


@pytest.fixture(scope="session")
def emptied_postgres_url(postgres_server: str, postgres_template: str, worker_id: str) -> str:
    """Return the address of one PostgreSQL database for all tests of this suite in a process."""
    name = f"triggers_{worker_id}"
    with psycopg.connect(postgres_server, autocommit=True) as server:
        server.execute(f"CREATE DATABASE {name} TEMPLATE {postgres_template}")
    return postgres_server.replace("/postgres?", f"/{name}?", 1)
