"""Returns the space of removed rows to the disk, on SQLite.

A file with incremental auto-vacuum returns a few pages at a time, and other processes write in between.
Files of earlier versions must be rewritten once, while no other process uses them. PostgreSQL manages
its space by itself.
"""

import shutil
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agent.store.db import sqlite, sqlite_errors
from agent.store.db.database import Connection, Database, StoreError
from agent.store.db.dialect import Fault
from agent.store.db.write_lock import WriteLockTimeoutError

_PAGES_AT_ONCE: Final = 1000
_INCREMENTAL: Final = 2
_CHECKPOINT_MS: Final = 500


@dataclass(frozen=True, slots=True)
class DiskUsage:
    """The disk space of a database."""

    file_bytes: int
    """The file and its write-ahead log."""
    free_bytes: int
    """Empty pages inside the file."""
    is_incremental: bool
    """Whether free pages can be returned a few at a time."""


def measure(database: Database) -> DiskUsage | None:
    """Return the disk space of a SQLite database; None on PostgreSQL."""
    if database.path is None:
        return None
    with database.connect("reader") as connection:
        size, free = _pragma(connection, "page_size"), _pragma(connection, "freelist_count")
        is_incremental = _pragma(connection, "auto_vacuum") == _INCREMENTAL
    log = database.path.with_name(database.path.name + "-wal")
    return DiskUsage(_size(database.path) + _size(log), size * free, is_incremental)


def shrink(database: Database) -> None:
    """Let the file shrink by its free pages, in short transactions."""
    for _ in shrink_in_steps(database):
        pass


def shrink_in_steps(database: Database) -> Generator[None]:
    """Shrink as `shrink` does, and yield after each short transaction: the caller may pause or stop."""
    if database.path is None:
        return
    with database.connect("writer") as connection:
        if _pragma(connection, "auto_vacuum") == _INCREMENTAL:
            left = _pragma(connection, "freelist_count")
            # Pages that other processes free meanwhile are left for the next time.
            for _ in range(0, left, _PAGES_AT_ONCE):
                with connection.transaction():
                    connection.query(f"PRAGMA incremental_vacuum({_PAGES_AT_ONCE})")
                yield
        _checkpoint(connection)


def rewrite(database: Database) -> None:
    """Rewrite the whole file without free pages; from then on `shrink` works on it.

    The caller makes sure that no agent runs. It needs as much free disk as the contents take.
    """
    if database.path is None or database.write_lock is None:
        return
    usage = measure(database)
    assert usage is not None
    needed = 2 * max(usage.file_bytes - usage.free_bytes, 0)
    room = shutil.disk_usage(database.path.parent).free
    if room < needed:
        raise StoreError(
            Fault.FULL,
            f"rewriting {database.path} needs {needed:,} bytes of disk, and {room:,} are free",
        )
    handle = database.write_lock.open()
    try:
        handle.acquire(sqlite.PATIENCE_SECONDS)
        with database.connect("writer") as connection:
            connection.query("PRAGMA auto_vacuum = INCREMENTAL")
            connection.execute("VACUUM")
            _checkpoint(connection)
        handle.count_commit()
    except WriteLockTimeoutError:
        raise StoreError(Fault.BUSY, sqlite_errors.locked(database.path)) from None
    finally:
        handle.close()


def _checkpoint(connection: Connection) -> None:
    """Copy the log to the file and empty it; a reader of old pages postpones that."""
    connection.query(f"PRAGMA busy_timeout = {_CHECKPOINT_MS}")
    connection.query("PRAGMA wal_checkpoint(TRUNCATE)")


def _pragma(connection: Connection, name: str) -> int:
    ((value,),) = connection.query(f"PRAGMA {name}")
    return int(value)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
