"""Fixtures of an engine on a database that the checker reads at the end of every test.

A `conftest.py` imports them by their names.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from agent.store.db.database import Database
from tests.support import step_functions
from tests.support.engine import Engine, Hand, HandClock, Start, find_violations
from tests.support.postgres import empty


@pytest.fixture
def postgres_database(emptied_postgres_url: str) -> Database:
    """Return a PostgreSQL database without any row: emptying is quicker than making one."""
    empty(emptied_postgres_url)
    return Database(emptied_postgres_url)


@pytest.fixture
def checked(database: Database) -> Iterator[Database]:
    """Return a database with a clock of the test's own; the checker must find nothing at the end."""
    database.clock = HandClock()
    yield database
    assert find_violations(database) == []


@pytest.fixture
def start(checked: Database) -> Iterator[Start]:
    """Return a function that starts a worker with given settings; all are stopped at the end."""
    engines: list[Engine] = []

    def start(**settings: Any) -> Engine:
        engines.append(Engine(checked, **settings))
        return engines[-1]

    yield start
    step_functions.open_all()
    for engine in engines:
        engine.stop()
        engine.close()


@pytest.fixture
def engine(start: Start) -> Engine:
    """Return a running worker."""
    return start()


@pytest.fixture
def hand(checked: Database) -> Iterator[Hand]:
    """Return a worker whose commits the test makes."""
    hand = Hand(checked)
    yield hand
    hand.close()
