"""The lock of the one process that runs the tasks of a SQLite database.

It is a lock on the database's file itself, whatever its path: two processes can never hold it for one
file. The operating system releases it when the process ends, however that happens: a held lock means a
live holder, and there is no timeout to wait for. The file beside the database, `NAME.lock`, only shows
people who the holder is; the lock works without it.
"""

import fcntl
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Self

from agent.core.files import database_file
from agent.core.quick_classes.quick_dataclasses import dataclass, values_of


@dataclass(frozen=True, slots=True)
class LockHolder:
    """The process that holds the lock: `role` is `daemon`, `run` for a command that runs its own task, or `upkeep`."""

    process_id: int
    """0 when it is not known."""
    role: str


class Lock:
    """The lock of one database file, as seen by one user of it in this process."""

    def __init__(self, path: Path) -> None:
        """Take the path of the database; the file must exist when the lock is taken."""
        self.path = path
        self._file: database_file.OpenFile | None = None
        self._beside: int | None = None
        """A lock on a file beside the database. Where the system has no better lock, it is the lock;
        elsewhere it excludes agents of versions that know only this one."""
        self._holder: LockHolder | None = None

    @property
    def holder_file(self) -> Path:
        """The file that names the holder."""
        real = Path(os.path.realpath(self.path))
        return real.with_name(real.name + ".lock")

    @property
    def _earlier(self) -> Path:
        """The file that earlier versions lock, by the path's name alone."""
        return self.path.with_suffix(".lock")

    @property
    def identity(self) -> database_file.Identity | None:
        """The file that the lock is held on, while it is."""
        return None if self._file is None else self._file.identity

    def acquire(self, role: str) -> bool:
        """Take the lock unless a live process has it."""
        if self._file is not None:
            return True
        file = database_file.open_file(self.path)
        self._holder = LockHolder(os.getpid(), role)
        is_ours = False
        try:
            is_ours = self._take(file)
        finally:
            if not is_ours:
                database_file.give_back(file)
        if not is_ours:
            return False
        self._file = file
        self._write()
        return True

    def _take(self, file: database_file.OpenFile) -> bool:
        if not database_file.CAN_LOCK:
            return self._lock_beside(self.holder_file, fcntl.LOCK_EX)
        if not file.try_lock(self):
            return False
        has_both = False
        try:
            # Shared: it excludes earlier versions, and no other database of this directory.
            has_both = self._lock_beside(self._earlier, fcntl.LOCK_SH)
        finally:
            if not has_both:
                file.unlock()
        return has_both

    def release(self) -> None:
        """Give the lock back; harmless when it is not held."""
        file, self._file = self._file, None
        if file is None:
            return
        if database_file.CAN_LOCK:
            file.unlock()
        if self._beside is not None:
            os.close(self._beside)
            self._beside = None
        database_file.give_back(file)

    def holder(self) -> LockHolder | None:
        """Return who holds the lock, or None when no live process does."""
        if not database_file.CAN_LOCK:
            return _flock_holder(self.holder_file)
        try:
            file = database_file.open_file(self.path)
        except OSError:
            return None
        try:
            if isinstance(file.owner, Lock):
                return file.owner._holder
            if file.is_locked_elsewhere():
                return _read(self.holder_file)
            return _flock_holder(self._earlier)
        finally:
            database_file.give_back(file)

    def is_held_under_another_name(self) -> bool:
        """Whether the database is in use under another hard link.

        SQLite names its log after the database: under two names there would be two logs.
        """
        try:
            if self.path.stat().st_nlink == 1:
                return False
        except OSError:
            return False
        holder = self.holder()
        return holder is not None and not _is_alive(holder.process_id)

    def _write(self) -> None:
        # Only for people: a full disk must not keep the agent from starting.
        with suppress(OSError):
            file = os.open(self.holder_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.ftruncate(file, 0)
                os.pwrite(
                    file, json.dumps(values_of(self._holder or LockHolder(0, ""))).encode(), 0
                )
            finally:
                os.close(file)

    def _lock_beside(self, path: Path, kind: int) -> bool:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if not _try_flock(file, kind):
            os.close(file)
            return False
        self._beside = file
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def _read(holder_file: Path) -> LockHolder:
    try:
        return LockHolder(**json.loads(holder_file.read_bytes()))
    except (OSError, ValueError, TypeError):
        # The holder used another path, or has not written the file yet.
        return LockHolder(process_id=0, role="daemon")


def _is_alive(process_id: int) -> bool:
    if process_id == 0:
        return False
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _flock_holder(holder_file: Path) -> LockHolder | None:
    try:
        file = os.open(holder_file, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return None if _try_flock(file, fcntl.LOCK_SH) else _read(holder_file)
    finally:
        os.close(file)


def _try_flock(file: int, kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
