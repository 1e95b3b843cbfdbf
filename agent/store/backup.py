"""Backups of a database: write a copy, check it, keep the newest ones.

A copy of SQLite is a database file of its own. It is complete before it gets its name, and a copy that
cannot be opened and read does not count as a backup. PostgreSQL is dumped by `pg_dump`.
"""

import contextlib
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from agent.core.clock import SECOND
from agent.core.files.file_sync import sync
from agent.store.db.database import Database, StoreError
from agent.store.db.dialect import Fault
from agent.store.schema import migrate

_NAME: Final = re.compile(r"agent-(\d{8}T\d{6}Z)(-before-\w+)?\.db")
_INSTANT: Final = "%Y%m%dT%H%M%SZ"
KEEP_BEFORE_UPGRADE: Final = 3
"""Copies from before upgrades are counted by themselves."""


@dataclass(frozen=True, slots=True)
class BackupContents:
    """The content of a backup that could be read."""

    path: Path
    bytes: int
    schema: str
    made_at: int | None
    """The instant of its last event; later events are not in it."""
    tasks: int
    open_tasks: int


@dataclass(frozen=True, slots=True)
class BackupFile:
    """A backup in the directory of backups, by its name."""

    path: Path
    made_at: int
    is_before_upgrade: bool
    bytes: int


def write(database: Database, path: Path) -> None:
    """Write a consistent copy of a database in use to a new file."""
    if path.exists():
        raise StoreError(Fault.DATA, f"{path} exists already: a backup never overwrites")
    if not path.parent.is_dir():
        raise StoreError(Fault.LOST, f"the directory {path.parent} does not exist")
    unfinished = path.with_name(path.name + ".unfinished")
    try:
        os.close(os.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600))
        if database.is_sqlite:
            _copy_sqlite(database, unfinished)
        else:
            _dump_postgresql(database, unfinished)
        sync(unfinished)
        unfinished.rename(path)
        sync(path.parent)
    except OSError as error:
        raise StoreError(Fault.FULL, f"cannot write {path}: {error.strerror}") from error
    finally:
        unfinished.unlink(missing_ok=True)


def verify(path: Path, *, is_thorough: bool = False) -> BackupContents:
    """Open a copy of a SQLite database and read it; raise `StoreError` if it cannot be used.

    A thorough check also compares every index with its table.
    """
    if not path.is_file():
        raise StoreError(Fault.LOST, f"there is no file {path}")
    database = Database(f"sqlite:///{path.absolute()}", has_write_lock=False)
    with database.connect("reader") as connection:
        pragma = "integrity_check" if is_thorough else "quick_check"
        ((verdict,), *_) = connection.query(f"PRAGMA {pragma}(1)")
        if verdict != "ok":
            raise StoreError(Fault.CORRUPT, f"{path} is damaged: {verdict}")
        schema = migrate.current(connection)
        if schema is None:
            raise StoreError(Fault.DATA, f"{path} is not a database of an agent")
        ((made_at,),) = connection.query("SELECT max(at) FROM events")
        ((tasks, open_tasks),) = connection.query(
            "SELECT count(*), count(*) - count(ended_at) FROM tasks"
        )
    return BackupContents(path, path.stat().st_size, schema, made_at, int(tasks), int(open_tasks))


def write_verified(
    database: Database, directory: Path, now: int, *, before: str | None = None
) -> BackupContents:
    """Write a copy of a SQLite database to the directory of backups, and check it.

    `before` names the schema of an upgrade that follows. A copy that cannot be read is removed.
    """
    _make_directory(directory)
    path = directory / _name_at(now, before)
    write(database, path)
    try:
        return verify(path)
    except StoreError:
        path.unlink(missing_ok=True)
        raise


def list_backups(directory: Path) -> list[BackupFile]:
    """Return the backups in a directory, the newest first; other files are not listed."""
    backups = []
    for path in directory.iterdir() if directory.is_dir() else ():
        match = _NAME.fullmatch(path.name)
        if match is None:
            continue
        # The daemon may remove an old copy at this moment.
        with contextlib.suppress(FileNotFoundError):
            moment = datetime.strptime(match[1], _INSTANT).replace(tzinfo=UTC)
            made_at = int(moment.timestamp()) * SECOND
            backups.append(BackupFile(path, made_at, match[2] is not None, path.stat().st_size))
    return sorted(backups, key=lambda copy: (copy.made_at, copy.path.name), reverse=True)


def rotate(directory: Path, keep: int) -> list[Path]:
    """Remove all but the newest backups, and return the removed ones.

    Copies from before upgrades are counted by themselves: they must not push out the daily ones.
    """
    backups = list_backups(directory)
    periodic = [copy for copy in backups if not copy.is_before_upgrade]
    upgrades = [copy for copy in backups if copy.is_before_upgrade]
    removed = [copy.path for copy in (*periodic[keep:], *upgrades[KEEP_BEFORE_UPGRADE:])]
    for path in removed:
        path.unlink(missing_ok=True)
    return removed


def _name_at(now: int, before: str | None) -> str:
    instant = datetime.fromtimestamp(now // SECOND, UTC).strftime(_INSTANT)
    return f"agent-{instant}{'' if before is None else f'-before-{before}'}.db"


def _make_directory(directory: Path) -> None:
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        reason = error.strerror or str(error)
        raise StoreError(
            Fault.FULL, f"the directory {directory} cannot be created: {reason}"
        ) from None


def _copy_sqlite(database: Database, path: Path) -> None:
    from agent.store.db.sqlite import SqliteConnection

    with database.connect("reader") as connection:
        assert isinstance(connection, SqliteConnection)
        connection.copy_to(path)


def _dump_postgresql(database: Database, path: Path) -> None:
    from agent.store.db.postgres import environment

    if _is_pooled(database):
        # pg_dump would leave a session without a search path in the pool.
        raise StoreError(
            Fault.DEFECT,
            "the database's address is that of a connection pooler, which pg_dump cannot use:"
            " name the server itself, as in AGENT_DATABASE__URL=postgresql://… agent db backup",
        )
    program = shutil.which("pg_dump")
    if program is None:
        raise StoreError(
            Fault.DEFECT,
            "a backup of a PostgreSQL database needs the program pg_dump:"
            " install PostgreSQL's client programs, or run pg_dump where they are",
        )
    # By the environment: every user can read a program's arguments, and so the password.
    completed = subprocess.run(
        [program, "--format=custom", f"--file={path}"],
        env={**os.environ, **environment(database.url)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if completed.returncode != 0:
        raise StoreError(Fault.LOST, f"pg_dump failed: {completed.stderr.strip()}")


def _is_pooled(database: Database) -> bool:
    try:
        with database.connect("reader") as connection:
            return connection.is_pooled
    except StoreError:
        # pg_dump reports why it cannot connect.
        return False
