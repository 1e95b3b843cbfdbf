"""A COMMIT without an answer is neither done nor undone: the caller must check."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.store.db.database import CommitUnknownError, Connection, Database, StoreError
from agent.store.db.dialect import Fault
from agent.store.db.sqlite import SqliteConnection
from tests.support.postgres_proxy import Proxy, proxied


@pytest.fixture
def lossy(postgres_url: str) -> Iterator[tuple[Proxy, Connection]]:
    """A connection whose answers can be lost on the way."""
    # Not under pytest's directory: a socket's path has about a hundred characters.
    with (
        tempfile.TemporaryDirectory(prefix="agent-proxy-") as directory,
        proxied(postgres_url, Path(directory)) as (proxy, url),
        Database(url).connect("writer") as connection,
    ):
        connection.execute("CREATE TABLE numbers (n bigint)")
        yield proxy, connection


def test_a_commit_whose_answer_is_lost_is_unknown(
    lossy: tuple[Proxy, Connection], postgres_database: Database
) -> None:
    """The caller gets `CommitUnknownError`; only a read shows that the row exists."""
    proxy, connection = lossy
    with pytest.raises(CommitUnknownError) as caught, connection.transaction():
        connection.execute("INSERT INTO numbers VALUES (1)")
        proxy.lose = b"COMMIT\0"
    assert caught.value.fault is Fault.LOST
    assert "whether the change was made is not known" in caught.value.message
    assert not connection.in_transaction
    with postgres_database.connect("reader") as other:
        assert other.query("SELECT n FROM numbers") == [(1,)]


def test_an_answer_lost_before_the_commit_is_a_lost_connection(
    lossy: tuple[Proxy, Connection], postgres_database: Database
) -> None:
    """Without a COMMIT sent the transaction is certainly undone."""
    proxy, connection = lossy
    with pytest.raises(StoreError) as caught, connection.transaction():
        proxy.lose = b"INSERT 0 1\0"
        connection.execute("INSERT INTO numbers VALUES (1)")
    assert type(caught.value) is StoreError
    assert caught.value.fault is Fault.LOST
    with postgres_database.connect("reader") as other:
        assert other.query("SELECT n FROM numbers") == []
    with pytest.raises(StoreError) as again:
        connection.query("SELECT 1")
    assert again.value.fault is Fault.LOST


def test_a_session_that_the_server_ends_is_undone(postgres_database: Database) -> None:
    """The server undoes the transaction; the commit after it may be unknown."""
    with (
        postgres_database.connect("writer") as connection,
        postgres_database.connect("writer") as other,
    ):
        connection.execute("CREATE TABLE numbers (n bigint)")
        with pytest.raises(StoreError) as caught, connection.transaction():
            ((pid,),) = connection.query("SELECT pg_backend_pid()")
            connection.execute("INSERT INTO numbers VALUES (1)")
            other.query("SELECT pg_terminate_backend(CAST(:pid AS int), 60000)", pid=pid)
            connection.query("SELECT n FROM numbers")
        assert caught.value.fault is Fault.LOST
        assert other.query("SELECT n FROM numbers") == []


def test_a_failed_sync_at_commit_is_unknown(sqlite_database: Database) -> None:
    """SQLite's log may hold the transaction after a crash: the commit is unknown."""

    class DiskError(Exception):
        sqlite_errorcode = 1034  # IOERR_FSYNC

    with sqlite_database.connect("writer") as connection:
        assert isinstance(connection, SqliteConnection)
        connection.execute("CREATE TABLE numbers (n bigint)")
        execute = connection._execute

        def fail_at_commit(sql: str, *arguments: object) -> object:
            if sql == "COMMIT":
                raise DiskError("disk I/O error")
            return execute(sql, *arguments)

        connection._errors = (*connection._errors, DiskError)
        connection._execute = fail_at_commit
        with pytest.raises(CommitUnknownError) as caught, connection.transaction():
            connection.execute("INSERT INTO numbers VALUES (1)")
        connection._execute = execute
        assert caught.value.fault is Fault.CORRUPT
        assert not connection.in_transaction
