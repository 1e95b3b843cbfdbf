"""No valid or invalid request gets a response that the OpenAPI description does not contain."""

import re
import sys
from pathlib import Path

import pytest

from agent.server.access import failed_auth_limiter
from agent.store.db.database import Database
from tests.server.fuzzing import fuzz
from tests.support.server import Running


def test_schemathesis_finds_nothing(
    sqlite_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A short run with a fixed seed; `make fuzz` runs longer."""
    # Requests without a token are what is tested: none may be held back for the ones before.
    monkeypatch.setattr(failed_auth_limiter, "MAX_FAILURES", sys.maxsize)
    with Running(sqlite_database, tmp_path) as running:
        done = fuzz(running, tmp_path, "--seed", "1", "--max-examples", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    passed = re.search(r"(\d+) generated, (\d+) passed", done.stdout)
    assert passed, done.stdout
    assert int(passed[2]) > 500
