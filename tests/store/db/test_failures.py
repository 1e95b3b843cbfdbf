"""Failures outside the agent give one clear message that says what to do."""

import contextlib
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.store.db import sqlite, sqlite_driver, sqlite_errors
from agent.store.db.database import Database, StoreError
from agent.store.db.dialect import Fault
from agent.store.db.postgres import PostgresConnection
from agent.store.schema import migrate


@contextlib.contextmanager
def _unprivileged() -> Iterator[None]:
    """Run as a user with file permissions: root ignores them."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_read_only_database_file(sqlite_database: Database) -> None:
    """Reading works; upgrades, writing connections and writes report that it is read-only."""
    assert sqlite_database.path is not None
    with tempfile.TemporaryDirectory(prefix="agent-readonly-") as name:
        directory = Path(name)
        path = directory / "agent.db"
        shutil.copyfile(sqlite_database.path, path)
        database = Database(f"sqlite:///{path}")
        # A reader of a write-ahead log needs its shared memory, which a writer leaves behind.
        with database.connect("writer") as first, first.transaction():
            first.execute("CREATE TABLE numbers (n bigint)")
        with database.connect("writer") as keeper:
            keeper.query("SELECT * FROM numbers")
            for file in directory.iterdir():
                file.chmod(0o444)
            directory.chmod(0o555)
            try:
                with _unprivileged():
                    migrate.check(database)
                    with pytest.raises(StoreError, match=str(path)) as caught:
                        migrate.upgrade(database)
                    assert caught.value.fault is Fault.READONLY
                    with (
                        pytest.raises(StoreError, match="cannot be written") as caught,
                        database.connect("writer") as writer,
                        writer.transaction(),
                    ):
                        writer.execute("INSERT INTO numbers VALUES (1)")
                    assert caught.value.fault is Fault.READONLY
            finally:
                directory.chmod(0o755)


def test_a_read_only_directory() -> None:
    """Creating a database there reports it."""
    with tempfile.TemporaryDirectory(prefix="agent-readonly-") as name:
        Path(name).chmod(0o555)
        try:
            with _unprivileged(), pytest.raises(StoreError, match="cannot be opened") as caught:
                migrate.upgrade(Database(f"sqlite:///{name}/agent.db"))
        finally:
            Path(name).chmod(0o755)
        assert caught.value.fault is Fault.READONLY


def test_a_read_only_file_system() -> None:
    """SQLite only reports that it cannot open the file, even to read; the message has the reason."""
    with tempfile.TemporaryDirectory(prefix="agent-readonly-") as name:
        path = Path(name) / "agent.db"
        path.touch()
        vague = Exception("unable to open database file")
        assert str(vague) in sqlite_errors.message(Fault.LOST, path, vague)
        Path(name).chmod(0o555)
        try:
            with _unprivileged():
                message = sqlite_errors.message(Fault.LOST, path, vague)
        finally:
            Path(name).chmod(0o755)
        assert (
            message
            == f"cannot open {path}: its directory cannot be written, which even readers need"
        )


def test_a_full_disk_undoes_the_transaction(sqlite_database: Database) -> None:
    """The fault is `FULL`, nothing of the transaction stays, and the connection can be used again."""
    with sqlite_database.connect("writer") as writer:
        writer.execute("CREATE TABLE texts (t text)")
        ((pages,),) = writer.query("PRAGMA page_count")
        writer.query(f"PRAGMA max_page_count = {pages + 2}")
        with pytest.raises(StoreError, match="no room is left") as caught, writer.transaction():
            for _ in range(100):
                writer.execute("INSERT INTO texts VALUES (:t)", t="x" * 4000)
        assert caught.value.fault is Fault.FULL
        assert not writer.in_transaction
        assert writer.query("SELECT count(*) FROM texts") == [(0,)]
        with writer.transaction():
            writer.execute("INSERT INTO texts VALUES ('fits')")
        assert writer.query("SELECT t FROM texts") == [("fits",)]


def test_a_log_index_that_cannot_grow_is_a_full_disk(
    sqlite_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite reports an error of the disk, but the condition is temporary."""

    class DiskError(Exception):
        sqlite_errorcode = 10  # IOERR

    with sqlite_database.connect("writer") as connection:
        assert isinstance(connection, sqlite.SqliteConnection)
        with pytest.raises(StoreError) as caught:
            connection._fail(DiskError("disk I/O error"))
        assert caught.value.fault is Fault.CORRUPT
        disk = os.statvfs("/")
        full = os.statvfs_result([0 if at == 4 else value for at, value in enumerate(disk)])
        assert full.f_bavail == 0
        monkeypatch.setattr(os, "statvfs", lambda _: full)
        with pytest.raises(StoreError, match="no room is left") as caught:
            connection._fail(DiskError("disk I/O error"))
        assert caught.value.fault is Fault.FULL
        with pytest.raises(StoreError) as caught:
            connection._fail(DiskError("disk I/O error"), at_commit=True)
        assert caught.value.fault is Fault.CORRUPT, "a failed sync is not known to have failed"


@pytest.mark.parametrize("content", [b"This is a letter, not a database. " * 200, b"SQLite" * 5])
def test_a_file_that_is_no_database(tmp_path: Path, content: bytes) -> None:
    """A file of another program is refused and left as it is."""
    path = tmp_path / "letter.txt"
    path.write_bytes(content)
    for use in (migrate.check, migrate.upgrade):
        with pytest.raises(StoreError, match="not a database of an agent") as caught:
            use(Database(f"sqlite:///{path}"))
        assert caught.value.fault is Fault.CORRUPT
    assert path.read_bytes() == content


def test_a_damaged_database(sqlite_database: Database) -> None:
    """Overwritten pages are reported as damage, not as a defect of the agent."""
    assert sqlite_database.path is not None
    size = sqlite_database.path.stat().st_size
    with sqlite_database.path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (size - 4096))
    with pytest.raises(StoreError, match="damaged") as caught:
        migrate.check(sqlite_database)
    assert caught.value.fault is Fault.CORRUPT


def test_a_missing_directory(tmp_path: Path) -> None:
    """The message names the directory, and nothing is created."""
    database = Database(f"sqlite:///{tmp_path}/nowhere/agent.db")
    for use in (migrate.check, migrate.upgrade):
        with pytest.raises(StoreError, match=f"{tmp_path}/nowhere does not exist") as caught:
            use(database)
        assert caught.value.fault is Fault.LOST
    assert list(tmp_path.iterdir()) == []


def test_a_directory_in_the_place_of_the_file(tmp_path: Path) -> None:
    """The message reports that it cannot be opened."""
    for use in (migrate.check, migrate.upgrade):
        with pytest.raises(StoreError, match=str(tmp_path)) as caught:
            use(Database(f"sqlite:///{tmp_path}"))
        assert caught.value.fault is Fault.LOST


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://agent:secret@127.0.0.1:1/agent",
        "postgresql://agent:secret@/agent?host=/nowhere/at/all",
        "postgresql://agent:secret@127.0.0.1/agent?nonsense=1",
    ],
)
def test_a_server_that_cannot_be_reached(url: str) -> None:
    """The message names the server and never the password."""
    for use in (migrate.check, migrate.upgrade):
        with pytest.raises(StoreError, match="cannot connect to PostgreSQL") as caught:
            use(Database(url))
        assert caught.value.fault is Fault.LOST
        assert "secret" not in caught.value.message
        assert "\n" not in caught.value.message


def test_a_database_missing_on_the_server(postgres_server: str) -> None:
    """The message contains the server's own text."""
    url = postgres_server.replace("/postgres?", "/nowhere?")
    with pytest.raises(StoreError, match='"nowhere" does not exist') as caught:
        migrate.check(Database(url))
    assert caught.value.fault is Fault.LOST


def test_a_connection_that_the_server_ended(postgres_database: Database) -> None:
    """Every later use reports that it is lost, and a new connection works."""
    with (
        postgres_database.connect("reader") as ended,
        postgres_database.connect("listener") as listener,
        postgres_database.connect("writer") as other,
    ):
        for connection in (ended, listener):
            ((pid,),) = connection.query("SELECT pg_backend_pid()")
            other.query("SELECT pg_terminate_backend(CAST(:pid AS int), 60000)", pid=pid)
        for _ in range(2):
            with pytest.raises(StoreError) as caught:
                ended.query("SELECT 1")
            assert caught.value.fault is Fault.LOST
        with pytest.raises(StoreError) as caught, ended.transaction():
            ended.execute("SELECT 1")
        assert caught.value.fault is Fault.LOST
        with pytest.raises(StoreError) as caught:
            while True:
                listener.wait_for_notify(60)
        assert caught.value.fault is Fault.LOST
    with postgres_database.connect("reader") as again:
        assert again.query("SELECT 1") == [(1,)]


def test_an_interrupted_exchange_breaks_the_connection(
    postgres_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unread answers must never be taken for those of the next statement."""
    with postgres_database.connect("writer") as connection:
        assert isinstance(connection, PostgresConnection)

        def interrupt() -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(connection._wire, "_receive", interrupt)
            connection.query("SELECT 1")
        with pytest.raises(StoreError) as caught:
            connection.query("SELECT 2")
        assert caught.value.fault is Fault.LOST


def test_a_lock_timeout_is_reported_as_busy(postgres_database: Database) -> None:
    """Waiting for a row is limited by the transaction's own timeout."""
    with (
        postgres_database.connect("writer") as holder,
        postgres_database.connect("worker") as waiter,
    ):
        holder.execute("INSERT INTO workers VALUES ('w', 1, 0, 'h', 1, 's', 1, NULL)")
        with holder.transaction():
            holder.execute("UPDATE workers SET turn = 2")
            with pytest.raises(StoreError) as caught, waiter.transaction():
                waiter.lock_timeout(20)
                waiter.execute("UPDATE workers SET turn = 3")
            assert caught.value.fault is Fault.BUSY
            skipping = f"SELECT id FROM workers {waiter.sql.skip_locked}"
            with waiter.transaction():
                assert waiter.query(skipping) == []
        with waiter.transaction():
            assert waiter.query(skipping) == [("w",)]
            ((limit,),) = waiter.query("SELECT current_setting('lock_timeout')")
            assert limit == "0"


def test_an_ignored_error_inside_a_transaction_fails_the_commit(
    postgres_database: Database,
) -> None:
    """PostgreSQL rolls such a transaction back at its COMMIT, and that is reported."""
    with postgres_database.connect("writer") as writer:
        with pytest.raises(StoreError, match="rolled back"), writer.transaction():
            writer.execute("INSERT INTO workers VALUES ('w', 1, 0, 'h', 1, 's', 1, NULL)")
            with contextlib.suppress(StoreError):
                writer.query("SELECT * FROM nowhere")
        assert writer.query("SELECT id FROM workers") == []


def test_a_text_with_a_nul_is_refused_by_postgresql(postgres_database: Database) -> None:
    """It would be truncated on its way: it is a data fault instead."""
    with postgres_database.connect("writer") as writer:
        with pytest.raises(StoreError, match="NUL") as caught:
            writer.query("SELECT CAST(:t AS text)", t="a\0b")
        assert caught.value.fault is Fault.DATA


def test_an_old_sqlite_uses_a_rollback_journal() -> None:
    """Before 3.51.3 a write-ahead log can be damaged: the agent warns and avoids it."""

    class Old:
        sqlite_version = "3.40.1"
        sqlite_version_info = (3, 40, 1)

    class Ancient:
        sqlite_version = "3.31.0"
        sqlite_version_info = (3, 31, 0)

    with pytest.warns(UserWarning, match="pysqlite3"):
        assert sqlite_driver.choose(Old).journal_mode == "delete"
    with pytest.raises(StoreError, match="too old"):
        sqlite_driver.choose(Ancient)


@pytest.mark.skipif(
    sqlite3.sqlite_version_info < (3, 38, 0), reason="Python's own SQLite is too old for us"
)
def test_the_standard_sqlite_module_works(tmp_path: Path) -> None:
    """Where `pysqlite3` has no wheel, everything works with the standard module."""
    code = f"""
import json, sys, warnings
sys.modules["pysqlite3"] = None
warnings.simplefilter("ignore")
from agent.store.db import sqlite_driver
from agent.store.db.database import Database
from agent.store.schema import migrate
database = Database("sqlite:///{tmp_path}/agent.db")
migrate.upgrade(database)
migrate.check(database)
assert sqlite_driver.driver().module.__name__ == "sqlite3"
with database.connect("worker") as worker, database.connect("writer") as writer:
    for connection in (worker, writer):
        with connection.transaction():
            connection.execute(
                "INSERT INTO step_logs (task_id, step_id, attempt, at, stream, text) SELECT"
                " r.a, r.a, r.b, r.b, r.a, r.a FROM " + database.sql.rows(a="text", b="int")
                + " WHERE r.a NOT IN " + database.sql.ids(), rows="[]", ids='["x"]')
    assert writer.query("PRAGMA journal_mode") == [(sqlite_driver.driver().journal_mode,)]
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
