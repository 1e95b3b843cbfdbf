"""Fixtures of the approvals' tests: the engine's, on a PostgreSQL database of their own."""

from tests.support.cli import cli  # noqa: F401  (a fixture by its name)
from tests.support.engine_fixtures import (  # noqa: F401  (fixtures by their names)
    checked,
    engine,
    hand,
    postgres_database,
    start,
)
