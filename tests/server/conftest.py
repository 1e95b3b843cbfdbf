"""Fixtures of the server's tests: one server per module for tests without special settings."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from agent.config.execution import StepSettings
from agent.store.db.database import Database
from tests.support.sample_workflows import FAILING, QUICK, SIGNALLED
from tests.support.server import Running


@pytest.fixture(scope="module")
def running(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Return a running server on SQLite with a few workflows, shared by a module's tests."""
    home = tmp_path_factory.mktemp("server")
    shutil.copyfile(sqlite_template, home / "agent.db")
    (home / "agent.db").chmod(0o600)
    # An effect without a result becomes a question soon, not after ten seconds.
    steps = StepSettings(send_window_seconds=0.5)
    with Running(Database(f"sqlite:///{home}/agent.db"), home, steps) as started:
        for text in (QUICK, SIGNALLED, FAILING):
            started.add_workflow(text)
        started.add_workflow(QUICK.replace("name: quick", "name: filed"), "/somewhere/filed.yaml")
        yield started


@pytest.fixture
def client(running: Running) -> Iterator[httpx.Client]:
    """Return a client with the owner's token."""
    with running.client() as client:
        yield client
