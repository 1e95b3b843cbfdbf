"""A SQLite file that is deleted, moved or replaced under an open connection: nothing counts as committed."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from agent import restore
from agent.store import backup
from agent.store.db import sqlite
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


_INSERT = "INSERT INTO request_keys (key, request_hash, created_at) VALUES (:key, '', :number)"


def rows_of(database: Database) -> list[int]:
    """Return what the tests below have written."""
    with database.connect("reader") as connection:
        rows = connection.query("SELECT created_at FROM request_keys ORDER BY created_at")
    return [number for (number,) in rows]


def insert(database: Database, *numbers: int) -> None:
    """Write, a commit for each number; the log is gone when the connection is closed."""
    with database.connect("writer") as connection:
        for number in numbers:
            with connection.transaction():
                connection.execute(_INSERT, key=str(number), number=number)


@pytest.fixture
def crashed(sqlite_database: Database, tmp_path: Path) -> Database:
    """Return a database as a killed agent leaves it, with a log, and two copies beside it."""
    path = sqlite_database.path
    assert path is not None
    home = tmp_path / "crashed"
    home.mkdir()
    insert(sqlite_database, 1)
    shutil.copyfile(path, home / "plain.db")
    sqlite.renew_id(sqlite_database)
    with sqlite_database.connect("reader") as reader:
        # From now on a connection uses the log, so that the end of the others does not empty it.
        reader.check()
        backup.write(sqlite_database, home / "backup.db")
        insert(sqlite_database, 2, 3)
        for file in path.parent.glob(f"{path.name}*"):
            shutil.copyfile(file, home / file.name)
    assert (home / f"{path.name}-wal").stat().st_size > 0
    return Database(f"sqlite:///{home / path.name}")


def test_a_file_keeps_the_log_that_is_its_own(crashed: Database) -> None:
    """After a kill, and where both were copied: what was committed is there."""
    assert rows_of(crashed) == [1, 2, 3]


@pytest.mark.parametrize("copy", ["plain.db", "backup.db"])
@pytest.mark.parametrize("is_in_place", [True, False])
def test_a_log_is_not_applied_to_another_file(
    crashed: Database, copy: str, is_in_place: bool
) -> None:
    """Opening it would damage the copy: the message names the log, and the command that restores."""
    assert crashed.path is not None
    source = crashed.path.with_name(copy)
    content = source.read_bytes()
    if is_in_place:
        crashed.path.write_bytes(content)
    else:
        shutil.copyfile(source, crashed.path.with_name("new.db")).replace(crashed.path)
    log = crashed.path.with_name(f"{crashed.path.name}-wal")
    for role in ("reader", "writer", "worker"):
        with pytest.raises(StoreError, match=r"`agent db restore FILE`") as raised:
            Database(crashed.url).connect(role)
        assert raised.value.fault is Fault.REPLACED
        assert str(log) in raised.value.message
    assert crashed.path.read_bytes() == content
    log.rename(log.with_name("away"))
    assert rows_of(Database(crashed.url)) == [1]


def test_a_restore_sets_a_foreign_log_aside(crashed: Database) -> None:
    """The command that the message names works, and keeps the log."""
    assert crashed.path is not None
    backup_file = crashed.path.with_name("backup.db")
    crashed.path.write_bytes(backup_file.read_bytes())
    restored = restore.restore(Database(crashed.url), backup_file)
    assert rows_of(Database(crashed.url)) == [1]
    assert restored.replaced is not None
    assert restored.replaced.with_name(f"{restored.replaced.name}-wal").stat().st_size > 0


@pytest.mark.parametrize("has_new_id", [True, False])
def test_a_kill_while_the_id_changes(
    crashed: Database, has_new_id: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before or after the header has the new id: the log still belongs to the file."""
    assert crashed.path is not None and crashed.write_lock is not None
    insert(crashed, 4)
    with crashed.connect("reader") as reader:
        assert isinstance(reader, sqlite.SqliteConnection)
        reader.check()
        before = reader.file_id()
        monkeypatch.setattr(crashed.write_lock, "record_file_ids", _first_call_only(crashed))
        sqlite.renew_id(crashed)
        after = reader.file_id()
        insert(crashed, 5)
        if not has_new_id:
            assert crashed.write_lock.file_ids() == (before, after)
        copied = crashed.path.with_name("killed.db")
        for suffix in ("", "-wal", ".gate"):
            shutil.copyfile(f"{crashed.path}{suffix}", f"{copied}{suffix}")
    if not has_new_id:
        with copied.open("r+b") as file:
            file.seek(60)
            file.write(before.to_bytes(4, "big"))
    assert rows_of(Database(f"sqlite:///{copied}")) == [1, 2, 3, 4, 5]


def _first_call_only(database: Database) -> Callable[[int, int], None]:
    assert database.write_lock is not None
    record, calls = database.write_lock.record_file_ids, iter([True])
    return lambda first, second: record(first, second) if next(calls, False) else None


@pytest.mark.parametrize("is_in_place", [True, False])
def test_the_log_of_a_file_that_was_replaced_is_set_aside(
    sqlite_database: Database, tmp_path: Path, is_in_place: bool
) -> None:
    """The running process notices, keeps the log under a name that it says, and spares the new file."""
    path = sqlite_database.path
    assert path is not None
    sqlite.renew_id(sqlite_database)
    insert(sqlite_database, 1)
    good = tmp_path / "good.db"
    backup.write(sqlite_database, good)
    content, log = good.read_bytes(), path.with_name(f"{path.name}-wal")
    with sqlite_database.connect("worker") as connection:
        with connection.transaction():
            connection.execute(_INSERT, key="2", number=2)
        if is_in_place:
            path.write_bytes(content)
        else:
            good.rename(path)
        with pytest.raises(StoreError, match=r"is kept as (.*-wal)$") as raised:
            connection.check_file()
        kept = Path(raised.value.message.rpartition(" ")[2])
        assert kept.stat().st_size > 0
        assert not log.exists() or log.stat().st_size == 0
    assert path.read_bytes() == content
    assert rows_of(Database(sqlite_database.url)) == [1]
    insert(Database(sqlite_database.url), 3)
    assert rows_of(Database(sqlite_database.url)) == [1, 3]


def test_the_log_of_a_file_that_was_moved_stays(sqlite_database: Database) -> None:
    """The file may come back, and needs it."""
    path = sqlite_database.path
    assert path is not None
    with sqlite_database.connect("worker") as connection:
        with connection.transaction():
            connection.execute("CREATE TABLE it (n bigint)")
        move(path)
        with pytest.raises(StoreError, match="moved or replaced"):
            connection.check_file()
    path.with_name("moved.db").rename(path)
    insert(Database(sqlite_database.url), 1)


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
