"""External workers and their agent are killed: nothing is lost, done twice in silence, or leased to two."""

from pathlib import Path

import pytest

from tests.crash.worker_kills import round_of
from tests.support.effort import short_or_full

pytestmark = [pytest.mark.process, pytest.mark.timeout(900)]

KILLS = short_or_full(4, 60)
CROWD = short_or_full(2, 6)
SEED = "20261118"


def test_workers_and_their_agent_killed_on_sqlite(sqlite_url: str, tmp_path: Path) -> None:
    """Every task ends with each effect done once, and no step ran in two processes at a time."""
    _survive(tmp_path, sqlite_url)


def test_workers_and_their_agent_killed_on_postgres(postgres_url: str, tmp_path: Path) -> None:
    """The same on PostgreSQL."""
    _survive(tmp_path, postgres_url)


def _survive(directory: Path, url: str) -> None:
    with round_of(directory, url, SEED, crowd=CROWD) as current:
        for _ in range(KILLS):
            current.strike()
        kills = current.close()
    assert kills.wrongs == []
    assert kills.counts["workers"] + kills.counts["agents"] == KILLS
    assert min(kills.counts["workers"], kills.counts["agents"]) > 0
    # Most are aimed; a handler may end between the look and the signal.
    assert kills.counts["workers in a handler"] + kills.counts["agents while handlers ran"] > 0
    assert kills.counts["runs"] >= 6 * kills.counts["tasks"] > 0
