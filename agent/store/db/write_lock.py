"""The write gate: file locks that let SQLite's writers take turns, and the mark they leave.

SQLite's own lock has no queue: a process that commits back to back takes it again before a waiting
one looks. So every writer holds this gate around its transaction, and the engine's turn, which is
the one that commits back to back, passes through it before each of its own.

The gate is two locks, or a writer in a loop would shut out the turn in its stead. Who wants through
first takes the place in front of the gate: whoever leaves the gate finds that place taken and
cannot overtake.

The gate's file also holds a counter of the writers' commits. Reading it is one system call, which
is how a daemon notices work that another process submitted.
"""

import contextlib
import fcntl
import os
import time
from pathlib import Path
from typing import Final

_SHORT_SECONDS: Final = 0.0001
_LONG_SECONDS: Final = 0.002
_SHORT_WAITS: Final = 500


class WriteLockTimeoutError(Exception):
    """Somebody was in the way all the time that we were willing to wait."""


class WriteLock:
    """The gate of one database file, as seen by this process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._reader: int | None = None

    def open(self) -> "WriteLockHandle":
        """Return a handle of one connection; two handles exclude each other in one process too."""
        place = self._open(self.path.with_suffix(".next"))
        try:
            return WriteLockHandle(self, self._open(self.path), place)
        except OSError:
            os.close(place)
            raise

    def mark(self) -> int:
        """Return how often writers have committed."""
        if self._reader is not None and is_removed(self._reader):
            os.close(self._reader)
            self._reader = None
        if self._reader is None:
            self._reader = self._open(self.path)
        return int.from_bytes(os.pread(self._reader, 8, 0), "little")

    @staticmethod
    def _open(path: Path) -> int:
        try:
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except PermissionError:
            # Another user's: it can be locked and read, and its mark stays as it is.
            if not path.exists():
                raise
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def __del__(self) -> None:
        if self._reader is not None:
            os.close(self._reader)


class WriteLockHandle:
    """One connection's way through the gate."""

    __slots__ = ("_files", "_gate", "_place")

    def __init__(self, files: WriteLock, gate: int, place: int) -> None:
        self._files = files
        self._gate = gate
        self._place = place

    def take(self, patience_seconds: float) -> None:
        """Hold the gate, or raise `WriteLockTimeoutError`."""
        self.approach(patience_seconds)
        self.leave_place()

    def approach(self, patience_seconds: float) -> None:
        """Hold the gate and the place in front of it, so that nobody can come next."""
        if is_removed(self._gate) or is_removed(self._place):
            self._reopen()
        _lock(self._place, patience_seconds)
        try:
            _lock(self._gate, patience_seconds)
        except BaseException:
            self.leave_place()
            raise

    def _reopen(self) -> None:
        """Open the current gate: its files were removed, and another process made new ones."""
        fresh = self._files.open()
        os.close(self._gate)
        os.close(self._place)
        self._gate, self._place = fresh._gate, fresh._place
        fresh._gate = fresh._place = -1

    def leave_place(self) -> None:
        """Let the next one come before the gate."""
        fcntl.flock(self._place, fcntl.LOCK_UN)

    def drop(self) -> None:
        """Let the next one through."""
        fcntl.flock(self._gate, fcntl.LOCK_UN)

    def bump(self) -> None:
        """Count one commit; only while holding the gate."""
        # A full disk must not make a failure of what is committed: the mark is only a hint.
        with contextlib.suppress(OSError):
            count = int.from_bytes(os.pread(self._gate, 8, 0), "little") + 1
            os.pwrite(self._gate, count.to_bytes(8, "little"), 0)

    def close(self) -> None:
        """Drop everything that is held, for good; closing twice is harmless."""
        if self._gate >= 0:
            os.close(self._gate)
            os.close(self._place)
            self._gate = self._place = -1

    def __del__(self) -> None:
        # A connection that was left to the garbage collector must not hold everybody else.
        self.close()


def is_removed(file: int) -> bool:
    """Whether an open file has no name any more."""
    return os.fstat(file).st_nlink == 0


def _lock(file: int, patience_seconds: float) -> None:
    # Not a blocking lock: a holder that was stopped would hang this thread for ever.
    deadline = None
    waits = 0
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            now = time.monotonic()
            deadline = deadline or now + patience_seconds
            if now >= deadline:
                raise WriteLockTimeoutError from None
        time.sleep(_SHORT_SECONDS if waits < _SHORT_WAITS else _LONG_SECONDS)
        waits += 1
