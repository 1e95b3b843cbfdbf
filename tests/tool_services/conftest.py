"""Fixtures of these tests: the engine's, on a PostgreSQL database of their own."""

import psycopg
import pytest

from tests.support.engine_fixtures import (  # noqa: F401  (fixtures by their names)
    checked,
    engine,
    postgres_database,
    start,
)


@pytest.fixture(scope="session")
def emptied_postgres_url(postgres_server: str, postgres_template: str, worker_id: str) -> str:
    """Return the address of one PostgreSQL database for all tests of this suite in a process."""
    name = f"tool_services_{worker_id}"
    with psycopg.connect(postgres_server, autocommit=True) as server:
        server.execute(f"CREATE DATABASE {name} TEMPLATE {postgres_template}")
    return postgres_server.replace("/postgres?", f"/{name}?", 1)
