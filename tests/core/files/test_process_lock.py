"""The lock that says which process runs a SQLite database's tasks, whatever name leads to its file."""

import fcntl
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agent.core.files import database_file
from agent.core.files.process_lock import Lock, LockHolder
from agent.store.db.database import Database

HOLD = """
import sys, time
from pathlib import Path
from agent.core.files.process_lock import Lock
lock = Lock(Path(sys.argv[1]))
assert lock.acquire("daemon")
print("held", flush=True)
time.sleep(600)
"""

LOCKS = Path("/proc/locks")
"""What the system says of all locks."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a database's file."""
    file = tmp_path / "agent.db"
    file.touch()
    return file


@contextmanager
def another_process(path: Path) -> "Iterator[subprocess.Popen[str]]":
    """Hold the lock in another process, until that is killed."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "held\n"
            yield process
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()


def test_one_holder_at_a_time(path: Path) -> None:
    """The second is refused while the first holds the lock, and can take it afterwards."""
    first, second = Lock(path), Lock(path)
    assert second.holder() is None
    assert first.acquire("daemon")
    assert first.acquire("daemon")
    assert not second.acquire("run")
    assert second.holder() == LockHolder(os.getpid(), "daemon")
    first.release()
    first.release()
    assert second.holder() is None
    with second:
        assert second.acquire("run")
        assert first.holder() == LockHolder(os.getpid(), "run")
    assert first.holder() is None


def test_a_killed_holder_leaves_no_lock(path: Path) -> None:
    """The lock goes with the process, even when it is killed; nothing has to be cleaned up."""
    with another_process(path) as process:
        assert Lock(path).holder() == LockHolder(process.pid, "daemon")
        assert not Lock(path).acquire("daemon")
    lock = Lock(path)
    assert lock.holder() is None
    assert lock.acquire("daemon")
    lock.release()


@pytest.mark.parametrize("how", ["symlink", "hard link", "other directory"])
def test_every_name_of_a_file_is_the_same_lock(path: Path, how: str) -> None:
    """A link to the database leads to the lock that the database has."""
    link = path.with_name("link.db")
    if how == "symlink":
        link.symlink_to(path)
    elif how == "hard link":
        link.hardlink_to(path)
    else:
        link = path.parent / "elsewhere" / "other.db"
        link.parent.mkdir()
        link.hardlink_to(path)
    with another_process(link):
        assert Lock(path).holder() is not None
        assert not Lock(path).acquire("daemon")
        assert Lock(path).is_held_under_another_name() == (how != "symlink")
        assert not Lock(link).is_held_under_another_name()


def test_the_file_beside_is_only_for_people(path: Path) -> None:
    """Without it, or with nothing in it, the lock still says that a holder lives."""
    with another_process(path) as process:
        lock = Lock(path)
        lock.holder_file.write_bytes(b"")
        assert lock.holder() == LockHolder(0, "daemon")
        lock.holder_file.unlink()
        assert lock.holder() == LockHolder(0, "daemon")
        assert not lock.acquire("daemon")
        assert process.poll() is None


def test_a_lock_that_could_not_be_taken_whole_is_not_held(path: Path) -> None:
    """After an error of the file system the same process may take it, and so may any other."""
    lock = Lock(path)
    beside = path.with_suffix(".lock")
    beside.mkdir()
    with pytest.raises(IsADirectoryError):
        lock.acquire("daemon")
    beside.rmdir()
    assert lock.holder() is None
    assert database_file._files == {}
    assert lock.acquire("daemon")
    lock.release()


def test_databases_in_one_directory_have_locks_of_their_own(path: Path) -> None:
    """Names that differ only in what follows the dot are two databases."""
    other = path.with_suffix(".sqlite")
    other.touch()
    with Lock(path) as first, Lock(other) as second:
        assert first.acquire("daemon")
        assert second.acquire("daemon")
        assert first.holder_file != second.holder_file


@pytest.mark.skipif(not LOCKS.exists(), reason="the system does not show its locks")
def test_asking_drops_no_lock_of_sqlite(sqlite_database: Database) -> None:
    """Locks are asked for, taken and given back beside an open connection, which keeps its own."""
    path = sqlite_database.path
    assert path is not None
    file = f":{path.stat().st_ino} "

    def held() -> list[str]:
        lines = LOCKS.read_text(encoding="utf-8").splitlines()
        return [line for line in lines if file in line and "POSIX" in line]

    with sqlite_database.connect("writer") as connection:
        connection.query("SELECT 1 FROM workers")
        assert held()
        for _ in range(2):
            with Lock(path) as lock:
                assert lock.holder() is None
                assert lock.acquire("daemon")
        with sqlite_database.connect("reader") as reader:
            reader.query("SELECT 1")
        assert held()
    assert not held()


def test_files_are_closed_with_their_last_user(sqlite_database: Database) -> None:
    """A process that is done with a database keeps none of its descriptors."""
    path = sqlite_database.path
    assert path is not None
    first, second = sqlite_database.connect("writer"), sqlite_database.connect("reader")
    assert database_file.identity_of(path) in database_file._files
    first.close()
    first.close()
    assert database_file.identity_of(path) in database_file._files
    del second
    assert database_file.identity_of(path) not in database_file._files


def test_the_lock_is_no_lock_of_sqlite(path: Path) -> None:
    """While one process holds it, others read and write the database."""
    with another_process(path):
        connection = sqlite3.connect(path, timeout=0)
        connection.execute("CREATE TABLE it (n integer)")
        connection.execute("INSERT INTO it VALUES (1)")
        connection.commit()
        connection.close()


def test_an_agent_of_an_earlier_version_is_kept_out(path: Path) -> None:
    """It locks a file by the path's name: only the first of the two starts."""
    earlier = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(earlier, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.write(earlier, b'{"process_id": 7, "role": "daemon"}')
        assert Lock(path).holder() == LockHolder(7, "daemon")
        assert not Lock(path).acquire("daemon")
        fcntl.flock(earlier, fcntl.LOCK_UN)
        with Lock(path) as lock:
            assert lock.holder() is None
            assert lock.acquire("daemon")
            with pytest.raises(BlockingIOError):
                fcntl.flock(earlier, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(earlier)
