"""SQLite: one file, many processes, one writer at a time.

SQLite applies a log to any file that has the log's name. So each database file has an id, in the field of
its header that is for the application, and the write lock's file has the id of the file in use. A file
with another id beside a log that is not empty was put there since: it is not opened.
"""

import os
import shutil
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NoReturn
from urllib.parse import quote

from agent.core import ids
from agent.core.clock import SECOND
from agent.core.files import database_file
from agent.store.db import sqlite_errors
from agent.store.db.database import (
    CommitUnknownError,
    Connection,
    Database,
    DeferredRows,
    Role,
    Row,
    StoreError,
    replaced,
)
from agent.store.db.dialect import Fault, sqlite_fault
from agent.store.db.sqlite_driver import driver
from agent.store.db.write_lock import WriteLock, WriteLockHandle, WriteLockTimeoutError

PATIENCE_SECONDS: Final = 30.0
"""How long a statement waits for other writers before it is `busy`."""

LOG_FILES: Final = ("-wal", "-journal", "-shm")
"""What SQLite adds to the name of a database for its logs, and for the index of the first."""

_ID_OFFSET: Final = 60
"""Of `PRAGMA user_version` in the file's header: four bytes, the highest first."""
_POLL_SECONDS: Final = 0.02
_CACHED_STATEMENTS: Final = 256
_IOERR: Final = 10
# 16 MB: pages that many commits write are then copied to the database once, not four times.
_CHECKPOINT_PAGES: Final = 4000

# Raised by the driver for a value that it cannot bind; they are not subclasses of its Error.
_BINDING_ERRORS: Final = (OverflowError, UnicodeEncodeError)


class SqliteConnection(Connection):
    """A connection to a file; the file must exist."""

    def __init__(self, path: Path, role: Role, write_lock: WriteLock | None) -> None:
        chosen = driver()
        self.sql = chosen.sql
        self.role = role
        self._path = path
        self._write_lock: WriteLockHandle | None = None
        self._commit_counter = write_lock
        self._seen_mark = 0
        self._begun = 0
        self._errors: tuple[type[Exception], ...] = (chosen.module.Error, *_BINDING_ERRORS)
        self._is_writer = role == "writer"
        try:
            self._file: database_file.OpenFile | None = database_file.open_file(path)
        except FileNotFoundError:
            raise StoreError(Fault.LOST, sqlite_errors.missing(path)) from None
        except OSError as error:
            reason = f"{path} cannot be opened: {error.strerror}"
            raise StoreError(sqlite_errors.os_fault(error), reason) from error
        self.identity = self._file.identity
        self._log: str | None = None
        """The write-ahead log, if there is one; its name is derived from the file's."""
        self._log_identity: database_file.Identity | None = None
        self._has_recorded_id = False
        try:
            self._refuse_foreign_log()
        except BaseException:
            self._leave_file()
            raise
        try:
            self._raw = chosen.module.connect(
                f"file:{quote(str(path))}?mode=rw",
                uri=True,
                timeout=PATIENCE_SECONDS,
                isolation_level=None,
                check_same_thread=False,
                cached_statements=_CACHED_STATEMENTS,
            )
        except chosen.module.Error as error:
            self._leave_file()
            self._fail(error)
        self._execute = self._raw.execute
        try:
            self._set_up(chosen.journal_mode)
            # Another file may have taken the name between the two openings.
            self.check_file()
            if write_lock is not None and role in ("worker", "writer"):
                self._write_lock = write_lock.open()
            if write_lock is not None and role == "listener":
                self._seen_mark = write_lock.mark()
        except OSError as error:
            self.close()
            raise StoreError(
                sqlite_errors.os_fault(error),
                f"cannot open the write lock of {path}: {error.strerror}",
            ) from error
        except BaseException:
            self.close()
            raise

    def _set_up(self, journal_mode: str) -> None:
        if self.role in ("worker", "writer"):
            if self._path.stat().st_size == 0:
                # Only possible before anything is written; lets the file shrink later.
                self.query("PRAGMA auto_vacuum = INCREMENTAL")
            ((mode,),) = self.query(f"PRAGMA journal_mode = {journal_mode}")
            if mode == "wal":
                self._log = f"{os.path.realpath(self._path)}-wal"
            self.query(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
            self.query("PRAGMA synchronous = FULL")
            self.query("PRAGMA foreign_keys = ON")
        else:
            self.query("PRAGMA query_only = ON")

    def query(self, sql: str, /, **params: Any) -> list[Row]:
        try:
            rows: list[Row] = self._execute(sql, params).fetchall()
        except self._errors as error:
            self._fail(error)
        return rows

    def execute(self, sql: str, /, **params: Any) -> int:
        try:
            count: int = self._execute(sql, params).rowcount
        except self._errors as error:
            self._fail(error)
        return count

    def query_each(self, statements: Sequence[tuple[str, dict[str, Any]]]) -> list[list[Row]]:
        try:
            return [self._execute(sql, params).fetchall() for sql, params in statements]
        except self._errors as error:
            self._fail(error)

    def defer(self, sql: str, /, **params: Any) -> None:
        try:
            # A COMMIT fails while a statement has unread rows.
            self._execute(sql, params).fetchall()
        except self._errors as error:
            self._fail(error)

    def later(self, sql: str, /, **params: Any) -> DeferredRows:
        return DeferredRows(self.query(sql, **params))

    def mark(self) -> tuple[int, int] | None:
        return self.query("PRAGMA data_version")[0][0], self._begun

    def lock_timeout(self, timeout_ms: int) -> None:
        """There are no row locks: the one writer locks the whole file."""

    def notify(self) -> None:
        """Nothing to send: listeners read the counter of commits."""

    def wait_for_notify(self, timeout_seconds: float) -> bool:
        deadline = time.monotonic() + timeout_seconds
        while True:
            mark = 0 if self._commit_counter is None else self._commit_counter.mark()
            if mark != self._seen_mark:
                self._seen_mark = mark
                return True
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(left, _POLL_SECONDS))

    def copy_to(self, path: Path) -> None:
        """Write a copy of the current database, while other processes write."""
        module = driver().module
        try:
            target = module.connect(str(path))
            try:
                # All pages in one step: with several, each write of another process would restart it.
                self._raw.backup(target, pages=-1)
            finally:
                target.close()
            with path.open("r+b") as file:
                file.seek(_ID_OFFSET)
                file.write(_new_id().to_bytes(4, "big"))
        except self._errors as error:
            if sqlite_errors.is_disk_full(path):
                raise StoreError(Fault.FULL, f"no room is left in {path.parent}") from error
            self._fail(error)

    def check(self) -> None:
        self.query("SELECT 1")
        self.check_file()

    def check_file(self) -> None:
        kept_log = None
        try:
            is_same = database_file.identity_of(self._path) == self.identity
            if self._log_identity is not None and self._log is not None:
                is_own_log = database_file.identity_of(self._log) == self._log_identity
                if is_own_log and not is_same:
                    kept_log = self._set_log_aside(self._log)
                elif is_own_log and self._is_overwritten():
                    is_same, kept_log = False, self._empty_log(self._log)
                is_same = is_same and is_own_log
        except OSError:
            is_same = False
        if not is_same:
            raise replaced(self._path, kept_log)

    def _is_overwritten(self) -> bool:
        """Whether a copy of another file was written over the one in use."""
        if not self._has_recorded_id or self._commit_counter is None:
            return False
        # The second look is for an id that was renewed during the first one.
        return all(
            file_id not in known and any(known)
            for file_id, known in ((self.file_id(), self._commit_counter.file_ids()) for _ in "12")
        )

    def _empty_log(self, log: str) -> str:
        """Keep a copy of the log of an overwritten file, and empty it: SQLite applies it when it closes."""
        real = Path(log.removesuffix("-wal"))
        kept = f"{kept_name(real, self.database.clock.now())}-wal"
        shutil.copy2(log, kept)
        os.truncate(log, 0)
        return kept

    def _set_log_aside(self, log: str) -> str:
        """Rename the log of a replaced file: SQLite would apply it to the file that is there now."""
        real = Path(log.removesuffix("-wal"))
        kept = kept_name(real, self.database.clock.now())
        Path(log).rename(f"{kept}-wal")
        with suppress(OSError):
            Path(f"{real}-shm").rename(f"{kept}-shm")
        return f"{kept}-wal"

    def file_id(self) -> int:
        """Return the id in the file's header."""
        assert self._file is not None
        return int.from_bytes(os.pread(self._file.descriptors[0], 4, _ID_OFFSET), "big")

    def _refuse_foreign_log(self) -> None:
        """Raise `StoreError` if the file was replaced since its log was written."""
        # SQLite itself removes the log of an empty file.
        if self._commit_counter is None or self._path.stat().st_size == 0:
            return
        known = self._commit_counter.file_ids()
        if not any(known) or self.file_id() in known:
            return
        for suffix in LOG_FILES[:2]:
            log = Path(os.path.realpath(self._path) + suffix)
            if log.is_file() and log.stat().st_size > 0:
                raise StoreError(
                    Fault.REPLACED,
                    f"{self._path} was replaced, and {log} is the log of the file that was there"
                    " before, which would damage it: put a backup there with `agent db restore"
                    f" FILE`, or move {log.name} away to use the file as it is",
                )

    def _record_id(self) -> None:
        """Record which file the log that begins belongs to; SQLite's lock is held."""
        self._has_recorded_id = True
        if self._commit_counter is not None:
            file_id = self.file_id()
            if file_id not in self._commit_counter.file_ids():
                self._commit_counter.record_file_ids(file_id, file_id)

    def close(self) -> None:
        self._raw.close()
        self.in_transaction = False
        if self._write_lock is not None:
            self._write_lock.close()
            self._write_lock = None
        self._leave_file()

    def _leave_file(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            database_file.give_back(file)

    def __del__(self) -> None:
        # A connection that was left to the garbage collector must not keep the file open.
        if getattr(self, "_file", None) is not None:
            if hasattr(self, "_raw"):
                self._raw.close()
            self._leave_file()

    def _begin(self) -> None:
        lock = self._write_lock
        if lock is not None:
            try:
                lock.acquire_with_queue(PATIENCE_SECONDS)
            except WriteLockTimeoutError:
                raise StoreError(Fault.BUSY, sqlite_errors.locked(self._path)) from None
        try:
            self._execute("BEGIN IMMEDIATE")
        except self._errors as error:
            if lock is not None:
                lock.release()
            self._fail(error)
        finally:
            if lock is not None:
                lock.leave_queue()
        if not self._has_recorded_id:
            self._record_id()
        if lock is not None and not self._is_writer:
            lock.release()
        self.in_transaction = True
        self._begun += 1

    def _begin_snapshot(self) -> None:
        self.execute("BEGIN")
        self.in_transaction = True

    def _commit(self) -> None:
        try:
            self._execute("COMMIT")
        except self._errors as error:
            self._rollback()
            self._fail(error, at_commit=True)
        self.in_transaction = False
        if self._is_writer and self._write_lock is not None:
            self._write_lock.count_commit()
            self._write_lock.release()
        self._check_commit()

    def _check_commit(self) -> None:
        """Raise if the commit went to a file that was deleted or replaced."""
        if self._log is not None and self._log_identity is None:
            try:
                self._log_identity = database_file.identity_of(self._log)
            except OSError:
                raise replaced(self._path) from None
        self.check_file()

    def _rollback(self) -> None:
        try:
            # Some errors, such as a full disk, have rolled the transaction back already.
            if self._raw.in_transaction:
                self._execute("ROLLBACK")
        except self._errors as error:
            self._fail(error)
        finally:
            self.in_transaction = False
            self._release_write_lock()

    def _release_write_lock(self) -> None:
        if self._is_writer and self._write_lock is not None:
            self._write_lock.release()

    def _fail(self, error: Exception, *, at_commit: bool = False) -> NoReturn:
        if isinstance(error, _BINDING_ERRORS):
            raise StoreError(Fault.DATA, f"a value cannot be stored: {error}") from error
        code = getattr(error, "sqlite_errorcode", None)
        fault = sqlite_fault(code)
        if code == _IOERR and not at_commit and sqlite_errors.is_disk_full(self._path):
            # SQLite reports a disk error when the log's index cannot grow.
            fault = Fault.FULL
        message = sqlite_errors.message(fault, self._path, error)
        if at_commit and fault is Fault.CORRUPT:
            # A failed sync may have written everything: after a crash the commit would count.
            raise CommitUnknownError(fault, message) from error
        raise StoreError(fault, message) from error


def kept_name(path: Path, now: int) -> Path:
    """Return the name under which a replaced file, or its log, is kept."""
    instant = datetime.fromtimestamp(now // SECOND, UTC)
    return path.with_name(f"{path.name}.replaced-{instant:%Y%m%dT%H%M%SZ}")


def renew_id(database: Database) -> None:
    """Give a file another id than its earlier copies have; the caller runs its tasks.

    Until the header has it, both ids are on record: this process may be killed at any point.
    """
    assert database.write_lock is not None
    with database.connect("writer") as connection:
        assert isinstance(connection, SqliteConnection)
        new = _new_id()
        database.write_lock.record_file_ids(connection.file_id(), new)
        with connection.transaction():
            connection.execute(f"PRAGMA user_version = {new}")
        connection.query("PRAGMA wal_checkpoint(PASSIVE)")
        if connection.file_id() == new:
            database.write_lock.record_file_ids(new, new)


def _new_id() -> int:
    return 1 + int(ids.random_fraction() * (2**31 - 2))


def create(path: Path) -> None:
    """Create an empty database file, with access for its owner alone, unless it exists."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except FileNotFoundError:
        raise StoreError(Fault.LOST, sqlite_errors.missing(path)) from None
    except OSError as error:
        reason = f"{path} cannot be opened for writing: {error.strerror}"
        raise StoreError(sqlite_errors.os_fault(error), reason) from error


def connect_for_migration(path: Path) -> Any:
    """Return the driver's own connection, for a migration.

    Foreign keys are off: recreating a table with them on would delete the rows that refer to it.
    """
    raw = driver().module.connect(
        str(path), timeout=PATIENCE_SECONDS, isolation_level=None, check_same_thread=False
    )
    raw.execute("PRAGMA synchronous = FULL")
    raw.execute("PRAGMA foreign_keys = OFF")
    return raw
