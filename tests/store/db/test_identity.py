"""A SQLite file that is deleted, moved or replaced under an open connection: nothing counts as committed."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.store.db.database import Database, StoreError
from agent.store.db.dialect import Fault
from agent.store.db.write_lock import WriteLockTimeoutError
from tests.support.engine import Engine, eventually, graph, step


def delete(path: Path) -> None:
    """Remove the file."""
    path.unlink()


def move(path: Path) -> None:
    """Give the file another name."""
    path.rename(path.with_name("moved.db"))


def replace(path: Path) -> None:
    """Put a copy in its place."""
    copy = path.with_name("copy.db")
    shutil.copyfile(path, copy)
    copy.replace(path)


def delete_log(path: Path) -> None:
    """Remove the write-ahead log."""
    path.with_name(path.name + "-wal").unlink()


HARM = pytest.mark.parametrize("harm", [delete, move, replace, delete_log])


@HARM
@pytest.mark.parametrize("role", ["worker", "writer"])
def test_a_commit_into_a_removed_file_is_an_error(
    sqlite_database: Database, role: str, harm: Callable[[Path], None]
) -> None:
    """The commit raises, since the file no longer has its name."""
    path = sqlite_database.path
    assert path is not None
    with sqlite_database.connect(role) as connection:  # type: ignore[arg-type]
        with connection.transaction():
            connection.execute("CREATE TABLE it (n bigint)")
        harm(path)
        with (
            pytest.raises(StoreError, match="deleted, moved or replaced") as raised,
            connection.transaction(),
        ):
            connection.execute("INSERT INTO it VALUES (1)")
        assert raised.value.fault is Fault.REPLACED
        with pytest.raises(StoreError):
            connection.check_file()


def test_a_process_stays_with_its_file(sqlite_database: Database) -> None:
    """A new connection does not open another file that has taken the name."""
    path = sqlite_database.path
    assert path is not None
    sqlite_database.connect("reader").close()
    replace(path)
    with pytest.raises(StoreError) as raised:
        sqlite_database.connect("writer")
    assert raised.value.fault is Fault.REPLACED
    with pytest.raises(StoreError):
        sqlite_database.check_file()
    Database(sqlite_database.url).connect("writer").close()


def test_a_copy_can_be_opened(sqlite_database: Database, tmp_path: Path) -> None:
    """The identity of a file is not written into it."""
    path = sqlite_database.path
    assert path is not None
    copy = tmp_path / "copy.db"
    shutil.copyfile(path, copy)
    with Database(f"sqlite:///{copy}").connect("writer") as connection, connection.transaction():
        connection.execute("CREATE TABLE it (n bigint)")


@HARM
def test_a_worker_whose_file_was_removed_ends(
    sqlite_database: Database, harm: Callable[[Path], None]
) -> None:
    """It notices while idle, ends with the reason, and accepts no more tasks."""
    path = sqlite_database.path
    assert path is not None
    engine = Engine(sqlite_database, poll_seconds=60.0)
    assert engine.run(graph(step("one")))["status"] == "succeeded"
    harm(path)
    eventually(lambda: engine.failure)
    assert isinstance(engine.failure, StoreError)
    assert engine.failure.fault is Fault.REPLACED
    engine.close()


def test_a_worker_without_its_row_ends(sqlite_database: Database) -> None:
    """Other content in the same file has no row of this worker: it does not enroll there again."""
    engine = Engine(sqlite_database, lease_seconds=3.0)
    engine.run(graph(step("one")))
    with sqlite_database.connect("writer") as connection, connection.transaction():
        connection.execute("PRAGMA defer_foreign_keys = ON")
        connection.execute("DELETE FROM workers")
    eventually(lambda: engine.failure)
    assert isinstance(engine.failure, StoreError)
    assert engine.failure.fault is Fault.REPLACED
    engine.close()


def test_a_removed_lock_file_is_replaced(sqlite_database: Database) -> None:
    """Writers that opened it before and after the removal still exclude each other."""
    gate = sqlite_database.write_lock
    assert gate is not None
    old = gate.open()
    old.acquire(1.0)
    old.release()
    gate.path.unlink()
    new = gate.open()
    old.acquire(1.0)
    with pytest.raises(WriteLockTimeoutError):
        new.acquire(0.05)
    old.close()
    new.acquire(1.0)
    new.close()


def test_a_symlink_leads_to_the_same_write_lock(sqlite_database: Database, tmp_path: Path) -> None:
    """Two names of a database have one write lock."""
    path = sqlite_database.path
    assert path is not None
    link = tmp_path / "link.db"
    link.symlink_to(path)
    other = Database(f"sqlite:///{link}")
    assert other.write_lock is not None
    assert sqlite_database.write_lock is not None
    assert other.write_lock.path == sqlite_database.write_lock.path
