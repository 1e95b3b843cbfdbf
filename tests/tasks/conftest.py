"""Fixtures of the engine's conformance suite: every test ends with a checked database."""

from tests.support.engine_fixtures import (  # noqa: F401
    checked,
    engine,
    hand,
    postgres_database,
    start,
)
from tests.support.trigger_bench import bench  # noqa: F401
