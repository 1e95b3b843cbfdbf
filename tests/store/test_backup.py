"""Backups: a consistent copy of a database in use, checked, and rotated."""

import shutil
import threading
from pathlib import Path

import pytest

from agent.core.clock import SECOND
from agent.store import backup
from agent.store.db import sqlite, sqlite_driver, sqlite_errors
from agent.store.db.database import Database, StoreError
from agent.store.db.dialect import Fault
from agent.store.schema import migrate
from tests.support.postgres import PostgresServer
from tests.support.rows import insert_task

PATIENCE_SECONDS = 60
DAY = 86_400 * SECOND


def test_a_backup_is_consistent_while_others_write(
    sqlite_database: Database, tmp_path: Path
) -> None:
    """The copy is one state of the database, readable only by its owner, and works alike."""
    is_over = threading.Event()
    is_writing = threading.Event()

    def write() -> None:
        with sqlite_database.connect("worker") as worker:
            number = 0
            while not is_over.is_set():
                number += 1
                with worker.transaction():
                    insert_task(worker, f"t{number:06}")
                is_writing.set()

    thread = threading.Thread(target=write)
    thread.start()
    path = tmp_path / "copy.db"
    try:
        assert is_writing.wait(PATIENCE_SECONDS)
        backup.write(sqlite_database, path)
    finally:
        is_over.set()
        thread.join(PATIENCE_SECONDS)
    copy = Database(f"sqlite:///{path}")
    migrate.check(copy)
    assert path.stat().st_mode & 0o077 == 0
    assert [file.name for file in tmp_path.glob("copy.db.unfinished*")] == []
    with copy.connect("writer") as connection:
        assert connection.query("PRAGMA integrity_check") == [("ok",)]
        ((tasks, steps),) = connection.query(
            "SELECT (SELECT count(*) FROM tasks), (SELECT count(*) FROM steps)"
        )
        assert tasks == steps >= 1
        with connection.transaction():
            insert_task(connection, "new")


def test_a_backup_never_overwrites(sqlite_database: Database, tmp_path: Path) -> None:
    """An existing file is refused and kept, and a missing directory is named."""
    path = tmp_path / "precious.db"
    path.write_text("precious")
    with pytest.raises(StoreError, match="never overwrites"):
        backup.write(sqlite_database, path)
    assert path.read_text() == "precious"
    with pytest.raises(StoreError, match="nowhere does not exist"):
        backup.write(sqlite_database, tmp_path / "nowhere" / "copy.db")


def test_a_backup_on_a_full_disk_names_the_disk(
    sqlite_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the copy's disk that is full, not the database's."""

    class Raw:
        def backup(self, *_: object, **__: object) -> None:
            raise sqlite_driver.driver().module.OperationalError("database or disk is full")

    monkeypatch.setattr(sqlite_errors, "is_disk_full", lambda path: path.parent == tmp_path)
    with sqlite_database.connect("reader") as connection:
        assert isinstance(connection, sqlite.SqliteConnection)
        raw, connection._raw = connection._raw, Raw()
        with pytest.raises(StoreError, match=f"no room is left in {tmp_path}$") as caught:
            connection.copy_to(tmp_path / "copy.db")
        connection._raw = raw
    assert caught.value.fault is Fault.FULL


def test_a_failed_backup_leaves_no_file(tmp_path: Path) -> None:
    """A database that cannot be read leaves no partial copy."""
    with pytest.raises(StoreError) as caught:
        backup.write(Database(f"sqlite:///{tmp_path}/none.db"), tmp_path / "copy.db")
    assert caught.value.fault is Fault.LOST
    assert list(tmp_path.iterdir()) == []


def test_a_backup_of_postgresql_uses_pg_dump(
    postgres_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It writes an archive; without `pg_dump` the message says what is needed."""
    path = tmp_path / "copy.dump"
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    with pytest.raises(StoreError, match="pg_dump"):
        backup.write(postgres_database, path)
    assert list(tmp_path.iterdir()) == []
    program = PostgresServer.installed_programs() / "pg_dump"
    monkeypatch.setattr(shutil, "which", lambda _name: str(program))
    backup.write(postgres_database, path)
    assert path.read_bytes().startswith(b"PGDMP")
    with pytest.raises(StoreError, match="pg_dump failed"):
        nowhere = postgres_database.url.replace("/t_", "/no_")
        backup.write(Database(nowhere), tmp_path / "other.dump")
    assert [file.name for file in tmp_path.iterdir()] == ["copy.dump"]


def test_a_verified_backup_says_what_is_in_it(sqlite_database: Database, tmp_path: Path) -> None:
    """It is opened and read: schema, tasks and the instant of the last event."""
    with sqlite_database.connect("writer") as connection, connection.transaction():
        insert_task(connection, "open", status="running")
        insert_task(connection, "ended", status="succeeded", ended_at=5)
    directory = tmp_path / "backups"
    contents = backup.write_verified(sqlite_database, directory, 1_800_000_000 * SECOND)
    assert contents.path.name == "agent-20270115T080000Z.db"
    assert (contents.schema, contents.tasks, contents.open_tasks) == (migrate.HEAD, 2, 1)
    assert directory.stat().st_mode & 0o077 == 0
    assert backup.verify(contents.path, is_thorough=True) == contents


def test_a_damaged_copy_is_no_backup(
    sqlite_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy that cannot be read is removed, and the error names it."""
    write = backup.write

    def write_damaged(database: Database, path: Path) -> None:
        write(database, path)
        content = bytearray(path.read_bytes())
        content[4096 * 2 : 4096 * 6] = b"x" * (4096 * 4)
        path.write_bytes(content)

    monkeypatch.setattr(backup, "write", write_damaged)
    with pytest.raises(StoreError) as caught:
        backup.write_verified(sqlite_database, tmp_path, 1)
    assert caught.value.fault is Fault.CORRUPT
    assert backup.list_backups(tmp_path) == []


@pytest.mark.parametrize("content", [b"", b"not a database, but long enough to look like one" * 99])
def test_a_file_of_another_kind_is_refused(tmp_path: Path, content: bytes) -> None:
    """An empty file and a text are no databases of an agent."""
    path = tmp_path / "other.db"
    path.write_bytes(content)
    with pytest.raises(StoreError, match="not a database of"):
        backup.verify(path)
    with pytest.raises(StoreError, match="there is no file"):
        backup.verify(tmp_path / "missing.db")


def test_rotation_keeps_the_newest_of_each_kind(tmp_path: Path) -> None:
    """Daily copies and those from before upgrades are counted apart; other files stay."""
    for day in range(5):
        (tmp_path / backup._name_at(day * DAY, None)).touch()
        (tmp_path / backup._name_at(day * DAY + SECOND, f"000{day}")).touch()
    (tmp_path / "agent.db").touch()
    (tmp_path / "my-own.db").touch()
    removed = backup.rotate(tmp_path, keep=2)
    assert len(removed) == 3 + 2
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {
        "agent-19700104T000000Z.db",
        "agent-19700105T000000Z.db",
        "agent-19700103T000001Z-before-0002.db",
        "agent-19700104T000001Z-before-0003.db",
        "agent-19700105T000001Z-before-0004.db",
        "agent.db",
        "my-own.db",
    }
    newest = backup.list_backups(tmp_path)[0]
    assert (newest.made_at, newest.is_before_upgrade) == (4 * DAY + SECOND, True)


def test_a_copy_that_goes_while_backups_are_listed_is_left_out(tmp_path: Path) -> None:
    """The daemon removes old copies at any moment; a link that leads nowhere looks the same."""
    (tmp_path / "agent-19700101T000000Z.db").write_bytes(b"kept")
    (tmp_path / "agent-19700102T000000Z.db").symlink_to(tmp_path / "removed")
    assert [copy.path.name for copy in backup.list_backups(tmp_path)] == [
        "agent-19700101T000000Z.db"
    ]
