"""A daemon that ends during a sync; `make crashpoints` tries every sync."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash import tracing
from tests.crash.campaign import SETTINGS
from tests.crash.crashpoints import Points
from tests.crash.processes import agents
from tests.support.fork_server import ForkServer

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(not tracing.is_possible(), reason="there is no strace that may trace"),
]


@pytest.fixture
def points(sqlite_template: Path, tmp_path: Path) -> Iterator[Points]:
    """Return the golden workload."""
    fork_server = ForkServer()
    url = f"sqlite:///{tmp_path / 'agent.db'}"
    with agents(tmp_path, url, SETTINGS, fork_server=fork_server) as those:
        yield Points(those, sqlite_template)
    fork_server.close()


def test_faults_at_some_syncs(points: Points) -> None:
    """Kills in a sync, kills during recovery, and disk errors: every task ends correctly."""
    points.begin()
    assert points.kill(6), points.those.describe()
    assert points.kill(3), points.those.describe()
    points.finish("killed at sync 6, then at sync 3")
    points.begin()
    assert points.fail("EIO", 4)
    points.finish("EIO at sync 4")
