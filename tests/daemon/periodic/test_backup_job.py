"""Backups by the daemon: due by the newest one, checked, rotated, and failures are noticed once."""

from pathlib import Path
from typing import Any

import pytest

from agent.config.operation import BackupSettings
from agent.core.clock import SECOND
from agent.core.files import disk_space
from agent.core.files.disk_space import DiskSpace
from agent.daemon.periodic import backup_job
from agent.daemon.periodic.backup_job import BackupJob
from agent.store import backup
from agent.store.db.database import Database
from agent.store.engine import outages
from tests.support.engine import HandClock

HOUR = 3600.0


@pytest.fixture
def clock(sqlite_database: Database) -> HandClock:
    """Return the database's clock, which the test moves."""
    clock = HandClock()
    sqlite_database.clock = clock
    return clock


def made(database: Database, directory: Path, **given: Any) -> tuple[BackupJob, list[float]]:
    """Return a job, and where the seconds until its next runs are collected."""
    waits: list[float] = []

    def set_time(instant: int) -> None:
        waits.append(round((instant - database.clock.now()) / SECOND))

    return BackupJob(BackupSettings(**given), directory, 0, database, set_time), waits


def test_a_run_writes_a_backup_and_removes_old_ones(
    sqlite_database: Database, clock: HandClock, tmp_path: Path
) -> None:
    """The newest ones stay; the next run is one interval later."""
    directory = tmp_path / "backups"
    job, waits = made(sqlite_database, directory, keep=2, every_hours=6.0)
    for _ in range(3):
        job.run()
        clock.skip(6 * HOUR)
    found = backup.list_backups(directory)
    assert len(found) == 2
    assert found[0].made_at - found[1].made_at == pytest.approx(6 * HOUR * SECOND, abs=2 * SECOND)
    assert waits == [6 * HOUR] * 3
    assert outages.latest(sqlite_database, (backup_job.FAILED, backup_job.RECOVERED)) == []


def test_the_first_run_follows_the_newest_backup(
    sqlite_database: Database, clock: HandClock, tmp_path: Path
) -> None:
    """A machine that is on for an hour a day is backed up; a restart does not back up again."""
    job, waits = made(sqlite_database, tmp_path)
    job.start()
    assert waits.pop() == backup_job.FIRST_PAUSE_SECONDS
    job.run()
    clock.skip(10 * HOUR)
    job.start()
    assert waits.pop() == pytest.approx(14 * HOUR, abs=2)
    clock.skip(100 * HOUR)
    job.start()
    assert waits.pop() == backup_job.FIRST_PAUSE_SECONDS


def test_a_backup_of_the_future_delays_the_next_by_one_interval(
    sqlite_database: Database, clock: HandClock, tmp_path: Path
) -> None:
    """It was made under a clock that was wrong."""
    job, waits = made(sqlite_database, tmp_path)
    clock.skip(1000 * HOUR)
    job.run()
    clock.skip(-1000 * HOUR)
    job.handle_jump(-1000 * HOUR)
    assert waits[-1] == 24 * HOUR


def test_failures_are_noticed_once_and_so_is_the_recovery(
    sqlite_database: Database, clock: HandClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk is found before the copy; a restart does not repeat the notice."""
    monkeypatch.setattr(
        disk_space, "measure", lambda paths: [DiskSpace(paths[0], free_bytes=1, total_bytes=9)]
    )
    directory = tmp_path / "backups"
    for _ in range(2):
        job, waits = made(sqlite_database, directory)
        job.run()
        job.run()
        assert waits == [backup_job.RETRY_SECONDS] * 2
    types = (backup_job.FAILED, backup_job.RECOVERED)
    (failed,) = outages.latest(sqlite_database, types)
    assert "a backup needs" in failed["error"]
    assert not directory.exists()
    monkeypatch.undo()
    sqlite_database.clock = clock
    job, waits = made(sqlite_database, directory)
    job.run()
    clock.skip(HOUR)
    job.run()
    assert [set(each) for each in outages.latest(sqlite_database, types)] == [
        {"directory", "error"},
        {"file"},
    ]
