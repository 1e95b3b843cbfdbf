"""Fixtures of the client's tests: a real agent on SQLite, shared by a module."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.store.db.database import Database
from tests.support.queue_bench import QueueBench
from tests.support.server import Running


@pytest.fixture(scope="module")
def running(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Return a running agent."""
    home = tmp_path_factory.mktemp("queue")
    shutil.copyfile(sqlite_template, home / "agent.db")
    (home / "agent.db").chmod(0o600)
    with Running(Database(f"sqlite:///{home}/agent.db"), home) as started:
        yield started


@pytest.fixture
def bench(running: Running) -> Iterator[QueueBench]:
    """Return the agent with a client of its API."""
    with running.client() as client:
        yield QueueBench(running, client)
