"""Giving the space of removed rows back to the disk, on SQLite.

A file that was made with incremental auto-vacuum gives back a few pages at a time, between which others
write. Files of earlier versions must be rewritten once, while nothing else uses them. PostgreSQL looks
after its space by itself.
"""

import shutil
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
class Space:
    """What a database takes of the disk."""

    file_bytes: int
    """The file and its write-ahead log."""
    free_bytes: int
    """Pages inside the file that hold nothing."""
    is_incremental: bool
    """Whether free pages can be given back a few at a time."""


def measure(database: Database) -> Space | None:
    """Return what a SQLite database takes of the disk; None on PostgreSQL."""
    if database.path is None:
        return None
    with database.connect("reader") as connection:
        size, free = _pragma(connection, "page_size"), _pragma(connection, "freelist_count")
        is_incremental = _pragma(connection, "auto_vacuum") == _INCREMENTAL
    log = database.path.with_name(database.path.name + "-wal")
    return Space(_size(database.path) + _size(log), size * free, is_incremental)


def give_back(database: Database) -> None:
    """Let the file shrink by its free pages, in short transactions."""
    if database.path is None:
        return
    with database.connect("writer") as connection:
        if _pragma(connection, "auto_vacuum") == _INCREMENTAL:
            left = _pragma(connection, "freelist_count")
            # What others free meanwhile is left to the next time.
            for _ in range(0, left, _PAGES_AT_ONCE):
                with connection.transaction():
                    connection.query(f"PRAGMA incremental_vacuum({_PAGES_AT_ONCE})")
        _checkpoint(connection)


def rewrite(database: Database) -> None:
    """Write the whole file once more without free pages; from then on it shrinks by itself.

    The caller sees to it that no agent runs. It needs as much room again as the contents take.
    """
    if database.path is None or database.gate is None:
        return
    found = measure(database)
    assert found is not None
    needed = 2 * max(found.file_bytes - found.free_bytes, 0)
    room = shutil.disk_usage(database.path.parent).free
    if room < needed:
        raise StoreError(
            Fault.FULL,
            f"rewriting {database.path} needs {needed:,} bytes of disk, and {room:,} are free",
        )
    handle = database.gate.open()
    try:
        handle.take(sqlite.PATIENCE_SECONDS)
        with database.connect("writer") as connection:
            connection.query("PRAGMA auto_vacuum = INCREMENTAL")
            connection.execute("VACUUM")
            _checkpoint(connection)
        handle.bump()
    except WriteLockTimeoutError:
        raise StoreError(Fault.BUSY, sqlite_errors.locked(database.path)) from None
    finally:
        handle.close()


def _checkpoint(connection: Connection) -> None:
    """Copy the log to the file and empty it; a reader that is in the way puts that off."""
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
