"""Fixtures of these tests: the engine's, on a PostgreSQL database of their own."""

from tests.support.engine_fixtures import (  # noqa: F401  (fixtures by their names)
    checked,
    engine,
    postgres_database,
    start,
)
