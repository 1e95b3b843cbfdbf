"""Pruning gives free space back to the disk."""

import shutil
from pathlib import Path

import pytest

from agent.store import free_space, pruning
from agent.store.db import sqlite, sqlite_driver
from agent.store.db.database import Database, StoreError
from agent.store.db.dialect import Fault
from agent.store.schema import migrate
from tests.support.rows import insert_task

BEFORE = 1000
TASKS = 300


def _fill(database: Database, count: int = TASKS) -> None:
    with database.connect("writer") as connection, connection.transaction():
        for number in range(count):
            insert_task(
                connection, f"t{number:04}", status="succeeded", ended_at=1, input=f'"{"x" * 9000}"'
            )


def _without_incremental(path: Path) -> Database:
    """Return a database as earlier versions created it."""
    sqlite.create(path)
    raw = sqlite_driver.driver().module.connect(str(path))
    raw.execute("CREATE TABLE first (x)")
    raw.execute("DROP TABLE first")
    raw.commit()
    raw.close()
    database = Database(f"sqlite:///{path}")
    migrate.upgrade(database)
    return database


def _measured(database: Database) -> free_space.DiskUsage:
    found = free_space.measure(database)
    assert found is not None
    return found


def test_a_new_database_shrinks_after_a_prune(sqlite_database: Database) -> None:
    """In short transactions, with the write-ahead log emptied too."""
    _fill(sqlite_database)
    full = _measured(sqlite_database)
    assert full.is_incremental
    with sqlite_database.connect("writer") as connection:
        assert pruning.prune(connection, BEFORE)["tasks"] == TASKS
    free_space.shrink(sqlite_database)
    after = _measured(sqlite_database)
    assert after.file_bytes < full.file_bytes / 4
    assert after.free_bytes == 0


def test_other_writers_are_not_blocked_while_space_is_freed(
    sqlite_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No transaction frees more than a bounded number of pages."""
    _fill(sqlite_database)
    with sqlite_database.connect("writer") as connection:
        pruning.prune(connection, BEFORE)
    monkeypatch.setattr(free_space, "_PAGES_AT_ONCE", 50)
    free = _measured(sqlite_database).free_bytes
    committed = sqlite_database.write_mark()
    free_space.shrink(sqlite_database)
    assert sqlite_database.write_mark() - committed >= free / 4096 / 50


def test_an_open_reader_only_delays_freeing(sqlite_database: Database) -> None:
    """A snapshot keeps the log from being emptied, and nothing fails."""
    _fill(sqlite_database)
    with sqlite_database.connect("reader") as reader, reader.snapshot():
        assert reader.query("SELECT count(*) FROM tasks") == [(TASKS,)]
        with sqlite_database.connect("writer") as connection:
            pruning.prune(connection, BEFORE)
        free_space.shrink(sqlite_database)
        assert reader.query("SELECT count(*) FROM tasks") == [(TASKS,)]
    free_space.shrink(sqlite_database)
    assert _measured(sqlite_database).file_bytes < 1_000_000


def test_a_file_of_an_earlier_version_is_rewritten_once(tmp_path: Path) -> None:
    """Until then its free pages stay inside; afterwards it shrinks as a new one does."""
    database = _without_incremental(tmp_path / "agent.db")
    _fill(database)
    with database.connect("writer") as connection:
        pruning.prune(connection, BEFORE)
    free_space.shrink(database)
    before = _measured(database)
    assert not before.is_incremental
    assert before.free_bytes > before.file_bytes / 2
    free_space.rewrite(database)
    after = _measured(database)
    assert after.is_incremental
    assert after.file_bytes < before.file_bytes / 4
    migrate.check(database)


def test_a_rewrite_needs_free_disk_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it the rewrite is refused before anything is written."""
    database = _without_incremental(tmp_path / "agent.db")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(1, 1, 0))
    with pytest.raises(StoreError, match="bytes of disk") as caught:
        free_space.rewrite(database)
    assert caught.value.fault is Fault.FULL


def test_postgresql_frees_its_own_space(postgres_database: Database) -> None:
    """The command does nothing there."""
    assert free_space.measure(postgres_database) is None
    free_space.shrink(postgres_database)
    free_space.rewrite(postgres_database)
