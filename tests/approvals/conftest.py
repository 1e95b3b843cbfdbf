"""Fixtures of the approvals' tests: the engine's, on a PostgreSQL database of their own."""

import psycopg
import pytest

from tests.support.cli import cli  # noqa: F401  (a fixture by its name)
from tests.support.engine_fixtures import (  # noqa: F401  (fixtures by their names)
    checked,
    engine,
    hand,
    postgres_database,
    start,
)


@pytest.fixture(scope="session")
def emptied_postgres_url(postgres_server: str, postgres_template: str, worker_id: str) -> str:
    """Return the address of one PostgreSQL database for all tests of this suite in a process."""
    name = f"approvals_{worker_id}"
    with psycopg.connect(postgres_server, autocommit=True) as server:
        server.execute(f"CREATE DATABASE {name} TEMPLATE {postgres_template}")
    return postgres_server.replace("/postgres?", f"/{name}?", 1)
