"""Disk space: noticed before it runs out, twice at most, and again when there is room."""

from pathlib import Path

import pytest

from agent.config.operation import DiskSettings
from agent.core.files import disk_space
from agent.core.files.disk_space import MEGABYTE, DiskSpace
from agent.daemon.periodic.disk_watch import DiskWatch
from agent.store.db.database import Database, StoreError
from agent.store.db.dialect import Fault
from agent.store.engine import outages
from agent.tasks.worker.health import Health

TYPES = ("disk.low", "disk.recovered")


class Disk:
    """A disk whose free space the test sets."""

    def __init__(self, database: Database, **settings: int) -> None:
        self.database = database
        self.health = Health(database.clock)
        self.free_mb = 0
        self.settings = DiskSettings(**settings)
        self.restart()

    def restart(self) -> None:
        """Watch as a new daemon does."""
        self.watch = DiskWatch(
            self.settings, [Path("/data")], self.database, self.health, self._measure
        )

    def _measure(self, paths: list[Path]) -> list[DiskSpace]:
        return [DiskSpace(paths[0], self.free_mb * MEGABYTE, 10_000 * MEGABYTE)]

    def check(self, free_mb: int) -> list[str]:
        """Check the disk with this much free; return the levels of all notices so far."""
        self.free_mb = free_mb
        self.watch.run()
        return [str(each["level"]) for each in outages.latest(self.database, TYPES)]


def test_each_level_is_noticed_once(database: Database) -> None:
    """Low, critical, room again; around a limit the notices do not alternate."""
    disk = Disk(database, low_mb=500, critical_mb=50)
    assert disk.check(501) == []
    assert disk.health.messages() == {}
    assert disk.check(499) == ["low"]
    assert disk.check(501) == ["low"]
    assert disk.check(40) == ["low", "critical"]
    assert disk.check(52) == ["low", "critical"]
    assert disk.check(400) == ["low", "critical"]
    assert disk.check(600) == ["low", "critical", "ok"]
    assert disk.check(499) == ["low", "critical", "ok", "low"]


def test_a_restart_repeats_no_notice(database: Database) -> None:
    """The last notice is on record; the recovery is noticed by the next daemon."""
    disk = Disk(database, low_mb=500, critical_mb=50)
    assert disk.check(400) == ["low"]
    disk.restart()
    assert disk.check(400) == ["low"]
    disk.restart()
    assert disk.check(5000) == ["low", "ok"]


def test_readiness_follows_the_disk(database: Database) -> None:
    """Low space degrades the agent, hardly any makes it unavailable, and both pass."""
    disk = Disk(database, low_mb=500, critical_mb=50)
    for free, expected in ((400, False), (10, True), (400, False)):
        disk.check(free)
        problem = disk.health.problem("disk")
        assert problem is not None
        assert problem.is_certain is expected
        assert f"{free} MB of 10,000 MB are free in /data" in problem.message
    disk.check(5000)
    assert disk.health.problem("disk") is None


def test_limits_of_zero_turn_the_notices_off(database: Database) -> None:
    """A full disk is found by the commits then."""
    disk = Disk(database, low_mb=0, critical_mb=0)
    assert disk.check(0) == []
    assert disk.health.messages() == {}


def test_a_notice_that_cannot_be_written_is_written_later(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database may be full already; `/readyz` knows nevertheless."""
    disk = Disk(database, low_mb=500, critical_mb=50)

    def refuse(*_: object) -> None:
        raise StoreError(Fault.FULL, "no room")

    with monkeypatch.context() as patched:
        patched.setattr(outages, "record", refuse)
        with pytest.raises(StoreError):
            disk.check(10)
    assert disk.health.problem("disk") is not None
    assert disk.check(10) == ["critical"]


def test_each_disk_is_measured_once(tmp_path: Path) -> None:
    """Directories of one disk count once, and one that is not there yet by its parent."""
    (tmp_path / "a").mkdir()
    (space,) = disk_space.measure([tmp_path / "a", tmp_path, tmp_path / "no" / "such"])
    assert space.path == tmp_path / "a"
    assert 0 < space.free_bytes < space.total_bytes
    assert disk_space.measure([tmp_path / "no" / "such"])[0].path == tmp_path
