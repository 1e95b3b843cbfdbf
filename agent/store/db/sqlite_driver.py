"""The SQLite library of this process, and its features."""

import warnings
from functools import cache
from typing import Any, Final

from agent.core.quick_classes.quick_dataclasses import dataclass, replace
from agent.store.db.database import StoreError
from agent.store.db.dialect import SQLITE, Fault, Sql

_OLDEST: Final = (3, 38, 0)
_SAFE_IN_WAL: Final = (3, 51, 3)


@dataclass(frozen=True, slots=True)
class Driver:
    """The module for SQLite, and the features of its library."""

    module: Any
    sql: Sql
    journal_mode: str


@cache
def driver() -> Driver:
    """Return the newest SQLite: `pysqlite3` has its own library, Python's may be old."""
    try:
        import pysqlite3.dbapi2 as module
    except ImportError:
        import sqlite3 as module
    return choose(module)


def choose(module: Any) -> Driver:
    """Return how the library of a module may be used.

    Before 3.51.3 two connections that write or checkpoint a write-ahead log at once can damage the
    file. A rollback journal has no such defect: it is slower, and readers wait for writers.
    """
    version = module.sqlite_version_info
    if version >= _SAFE_IN_WAL:
        return Driver(module, SQLITE, "wal")
    if version < _OLDEST:
        raise StoreError(
            Fault.DEFECT,
            f"SQLite {module.sqlite_version} is too old; install the package pysqlite3",
        )
    warnings.warn(
        f"SQLite {module.sqlite_version} can damage a database in its fast mode (fixed in 3.51.3):"
        " the slow one is used. Install the package pysqlite3 for speed.",
        stacklevel=2,
    )
    return Driver(module, replace(SQLITE, each="json_each"), "delete")
