"""Fixtures of the engine's conformance suite: every test ends with a checked database."""

import psycopg
import pytest

from tests.support.engine_fixtures import (  # noqa: F401
    checked,
    engine,
    hand,
    postgres_database,
    start,
)
from tests.support.trigger_bench import bench  # noqa: F401


@pytest.fixture(scope="session")
def emptied_postgres_url(postgres_server: str, postgres_template: str, worker_id: str) -> str:
    """Return the address of one PostgreSQL database for all tests of this suite in a process."""
    name = f"engine_{worker_id}"
    with psycopg.connect(postgres_server, autocommit=True) as server:
        server.execute(f"CREATE DATABASE {name} TEMPLATE {postgres_template}")
    return postgres_server.replace("/postgres?", f"/{name}?", 1)
