"""The write lock: a busy daemon starves no other writer, and commits are counted."""

import contextlib
import errno
import multiprocessing
import os
import threading
from collections.abc import Iterator
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest

from agent.store.db import sqlite
from agent.store.db.database import Connection, Database, StoreError
from agent.store.db.dialect import Fault
from agent.store.db.write_lock import WriteLock, WriteLockTimeoutError

PATIENCE_SECONDS = 60


def _commit_back_to_back(url: str, is_running: Event, is_over: Event) -> None:
    """Act as a busy daemon: hold the database nearly all the time."""
    number = 0
    with Database(url).connect("worker") as worker:
        while not is_over.is_set():
            with worker.transaction():
                number += 1
                worker.execute("INSERT INTO pairs (who, n) VALUES ('worker', :n)", n=number)
            is_running.set()


def _add(connection: Connection, who: str, number: int) -> None:
    with connection.transaction():
        connection.execute("INSERT INTO pairs (who, n) VALUES (:who, :n)", who=who, n=number)


@contextlib.contextmanager
def _busy_worker(database: Database) -> Iterator[None]:
    context = multiprocessing.get_context("spawn")
    is_running, is_over = context.Event(), context.Event()
    process = context.Process(target=_commit_back_to_back, args=(database.url, is_running, is_over))
    process.start()
    try:
        assert is_running.wait(PATIENCE_SECONDS)
        yield
    finally:
        is_over.set()
        process.join(PATIENCE_SECONDS)
        process.kill()
    assert process.exitcode == 0


def _last_id(connection: Connection) -> int:
    ((last,),) = connection.query("SELECT coalesce(max(id), 0) FROM pairs")
    return int(last)


def test_a_busy_worker_starves_no_writer(sqlite_database: Database) -> None:
    """A writer's commit waits for few of the worker's, however fast those follow each other."""
    overtaken = 0
    with sqlite_database.connect("writer") as writer:
        writer.execute("CREATE TABLE pairs (id integer PRIMARY KEY, who text, n bigint)")
        with _busy_worker(sqlite_database):
            mine = 0
            for number in range(30):
                while (seen := _last_id(writer)) == mine:
                    pass
                _add(writer, "writer", number)
                ((mine,),) = writer.query("SELECT max(id) FROM pairs WHERE who = 'writer'")
                overtaken += mine - seen - 1
    # About one per commit; without the lock it is thousands.
    assert overtaken < 30 * 100


def test_a_busy_writer_does_not_starve_the_worker(sqlite_database: Database) -> None:
    """A process that submits in a loop leaves the worker its share of commits."""
    with sqlite_database.connect("writer") as writer:
        writer.execute("CREATE TABLE pairs (id integer PRIMARY KEY, who text, n bigint)")
        with _busy_worker(sqlite_database):
            before = _last_id(writer)
            for number in range(2000):
                _add(writer, "writer", number)
                if _last_id(writer) - before - number > 100:
                    break
            else:
                pytest.fail("the worker had fewer than 100 commits beside 2,000 of a writer")


def test_a_writer_holds_the_write_lock_and_a_worker_does_not(sqlite_database: Database) -> None:
    """A worker takes the lock only to begin its transaction."""
    assert sqlite_database.write_lock is not None
    other = sqlite_database.write_lock.open()
    with (
        sqlite_database.connect("writer") as writer,
        sqlite_database.connect("worker") as worker,
    ):
        with writer.transaction(), pytest.raises(WriteLockTimeoutError):
            other.acquire(0.0)
        other.acquire(0.0)
        other.release()
        with worker.transaction():
            other.acquire(0.0)
            other.release()
        with pytest.raises(ZeroDivisionError), writer.transaction():
            raise ZeroDivisionError
        other.acquire(0.0)
        other.release()
    other.close()


def test_a_write_lock_that_is_never_released_times_out(
    sqlite_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer that keeps the lock makes others fail as busy, with a message; none hangs."""
    monkeypatch.setattr(sqlite, "PATIENCE_SECONDS", 0.1)
    assert sqlite_database.write_lock is not None
    stuck = sqlite_database.write_lock.open()
    stuck.acquire(0.0)
    for role in ("worker", "writer"):
        with (
            sqlite_database.connect(role) as connection,
            pytest.raises(StoreError, match="locked") as caught,
            connection.transaction(),
        ):
            raise AssertionError
        assert caught.value.fault is Fault.BUSY
        assert not connection.in_transaction
    stuck.close()
    with sqlite_database.connect("writer") as connection, connection.transaction():
        assert connection.in_transaction


def test_a_dead_holder_frees_the_write_lock(tmp_path: Path) -> None:
    """The lock ends with its process, so nothing has to be cleaned up after a crash."""
    gate = WriteLock(tmp_path / "db.gate")
    context = multiprocessing.get_context("spawn")
    is_held = context.Event()
    holder = context.Process(target=_hold, args=(gate.path, is_held))
    holder.start()
    try:
        assert is_held.wait(PATIENCE_SECONDS)
        mine = gate.open()
        with pytest.raises(WriteLockTimeoutError):
            mine.acquire(0.05)
    finally:
        holder.kill()
        holder.join(PATIENCE_SECONDS)
    mine.acquire(PATIENCE_SECONDS)
    mine.close()


def _hold(path: Path, is_held: Event) -> None:
    handle = WriteLock(path).open()
    handle.acquire(PATIENCE_SECONDS)
    is_held.set()
    threading.Event().wait()


def test_a_forgotten_connection_frees_the_write_lock(sqlite_database: Database) -> None:
    """A writer that was dropped inside its transaction blocks no other."""
    forgotten = sqlite_database.connect("writer")
    forgotten._begin()
    del forgotten
    with sqlite_database.connect("writer") as writer, writer.transaction():
        writer.execute("CREATE TABLE pairs (n bigint)")


def test_a_full_disk_hides_no_commit(
    sqlite_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit is reported as committed even if the mark cannot be written."""

    def fail(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with sqlite_database.connect("writer") as writer:
        monkeypatch.setattr(os, "pwrite", fail)
        with writer.transaction():
            writer.execute("CREATE TABLE pairs (n bigint)")
        monkeypatch.undo()
        with writer.transaction():
            writer.execute("INSERT INTO pairs VALUES (1)")
    assert sqlite_database.write_mark() == 1


def test_a_writers_commit_moves_the_mark(sqlite_database: Database) -> None:
    """A rollback and a worker's commit do not."""
    other = Database(sqlite_database.url)
    with sqlite_database.connect("writer") as writer, sqlite_database.connect("worker") as worker:
        writer.execute("CREATE TABLE pairs (id integer PRIMARY KEY, who text, n bigint)")
        assert other.write_mark() == 0
        _add(writer, "writer", 1)
        assert other.write_mark() == 1
        _add(worker, "worker", 1)
        with pytest.raises(ZeroDivisionError), writer.transaction():
            raise ZeroDivisionError
        assert other.write_mark() == 1
        _add(writer, "writer", 2)
        assert other.write_mark() == sqlite_database.write_mark() == 2


def test_marks_of_two_writers_add_up(sqlite_database: Database) -> None:
    """Two parallel writers lose none of their commits and none of their marks."""

    def write(who: str) -> None:
        with Database(sqlite_database.url).connect("writer") as connection:
            for number in range(20):
                _add(connection, who, number)

    with sqlite_database.connect("writer") as writer:
        writer.execute("CREATE TABLE pairs (id integer PRIMARY KEY, who text, n bigint)")
        threads = [threading.Thread(target=write, args=(who,)) for who in ("a", "b")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_SECONDS)
        assert writer.query("SELECT count(*) FROM pairs") == [(40,)]
        assert sqlite_database.write_mark() == 40


def test_a_database_without_a_write_lock(sqlite_url: str, tmp_path: Path) -> None:
    """One that no other process writes needs no lock, has no file for it, and counts no commits."""
    database = Database(sqlite_url, has_write_lock=False)
    with database.connect("writer") as writer, writer.transaction():
        writer.execute("CREATE TABLE pairs (n bigint)")
    assert database.write_mark() == 0
    assert not list(tmp_path.glob("*.gate"))
