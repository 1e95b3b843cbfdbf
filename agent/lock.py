"""The file lock that says which process runs the tasks of a SQLite database.

The operating system drops the lock with the process, however that ends: a held lock is a living
holder, with no time-out to wait for. What is written in the file is for people.
"""

import fcntl
import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

_PATIENCE_SECONDS = 0.5
"""Somebody who only asks holds the lock for a moment; that must not look like a holder."""


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds the lock: `role` is `daemon`, `run` for a command that runs its own task, or `upkeep`."""

    process_id: int
    role: str


class Lock:
    """A lock that one living process can hold at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: int | None = None

    def acquire(self, role: str) -> bool:
        """Take the lock unless another process lives that has it."""
        if self._file is not None:
            return True
        self.path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        give_up = time.monotonic() + _PATIENCE_SECONDS
        while not _try_lock(file, fcntl.LOCK_EX):
            if time.monotonic() > give_up:
                os.close(file)
                return False
            time.sleep(0.02)
        os.ftruncate(file, 0)
        os.pwrite(file, json.dumps(asdict(Holder(os.getpid(), role))).encode(), 0)
        self._file = file
        return True

    def release(self) -> None:
        """Give the lock back; harmless when it is not held."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def holder(self) -> Holder | None:
        """Return who holds the lock, or None when nobody alive does."""
        try:
            file = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            if _try_lock(file, fcntl.LOCK_SH):
                return None
            return _read(file)
        finally:
            os.close(file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def _try_lock(file: int, kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _read(file: int) -> Holder:
    try:
        return Holder(**json.loads(os.pread(file, 4096, 0)))
    except (ValueError, TypeError):
        # Its holder is between taking the lock and writing who it is.
        return Holder(process_id=0, role="daemon")
