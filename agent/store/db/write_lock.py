"""The write lock: file locks that queue SQLite's writers, and a counter of their commits.

SQLite's own lock has no queue: a process that commits back to back takes it again before a waiting
process tries. So every writer holds this lock around its transaction. The worker, which commits back
to back, takes and releases it before each transaction.

There are two locks: without a queue a writer in a loop would shut out the worker instead. A writer
first takes the queue's lock, then the write lock: a writer that has just released the write lock finds
the queue taken and cannot overtake.

The lock's file also contains a counter of the writers' commits. Reading it takes one system call. A
daemon notices the submissions of other processes by it. Behind the counter are the ids of the database
file that is in use: see `sqlite.renew_id`.
"""

import contextlib
import fcntl
import os
import struct
import time
from pathlib import Path
from typing import Final

_SHORT_SECONDS: Final = 0.0001
_LONG_SECONDS: Final = 0.002
_SHORT_WAITS: Final = 500
_FILE_IDS: Final = struct.Struct("<II")
_FILE_IDS_OFFSET: Final = 8


class WriteLockTimeoutError(Exception):
    """Another writer held the lock for the whole time that the caller was willing to wait."""


class WriteLock:
    """The write lock of one database file, as seen by this process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._reader: int | None = None

    def open(self) -> "WriteLockHandle":
        """Return a handle for one connection; handles of one process exclude each other too."""
        queue = self._open(self.path.with_suffix(".next"))
        try:
            return WriteLockHandle(self, self._open(self.path), queue)
        except OSError:
            os.close(queue)
            raise

    def mark(self) -> int:
        """Return how often writers have committed."""
        return int.from_bytes(os.pread(self._current(), 8, 0), "little")

    def file_ids(self) -> tuple[int, int]:
        """Return the ids that the database file in use may have; zeros: not recorded."""
        found = os.pread(self._current(), _FILE_IDS.size, _FILE_IDS_OFFSET)
        first, second = _FILE_IDS.unpack(found.ljust(_FILE_IDS.size, b"\0"))
        return first, second

    def record_file_ids(self, first: int, second: int) -> None:
        """Record the ids that the database file may have, durably."""
        # Another user's file cannot be written; then the log of a replaced file is not recognized.
        with contextlib.suppress(OSError):
            os.pwrite(self._current(), _FILE_IDS.pack(first, second), _FILE_IDS_OFFSET)
            os.fsync(self._current())

    def _current(self) -> int:
        if self._reader is not None and is_removed(self._reader):
            os.close(self._reader)
            self._reader = None
        if self._reader is None:
            self._reader = self._open(self.path)
        return self._reader

    @staticmethod
    def _open(path: Path) -> int:
        try:
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except PermissionError:
            # Another user's file: it can be locked and read, but commits are not counted in it.
            if not path.exists():
                raise
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def __del__(self) -> None:
        if self._reader is not None:
            os.close(self._reader)


class WriteLockHandle:
    """The write lock as one connection uses it."""

    __slots__ = ("_files", "_lock", "_queue")

    def __init__(self, files: WriteLock, lock: int, queue: int) -> None:
        self._files = files
        self._lock = lock
        self._queue = queue

    def acquire(self, patience_seconds: float) -> None:
        """Take the lock, or raise `WriteLockTimeoutError`."""
        self.acquire_with_queue(patience_seconds)
        self.leave_queue()

    def acquire_with_queue(self, patience_seconds: float) -> None:
        """Take the lock and keep the queue's, so that no other writer can wait for the lock yet."""
        if is_removed(self._lock) or is_removed(self._queue):
            self._reopen()
        _flock(self._queue, patience_seconds)
        try:
            _flock(self._lock, patience_seconds)
        except BaseException:
            self.leave_queue()
            raise

    def _reopen(self) -> None:
        """Open the current files: the old ones were removed, and another process made new ones."""
        fresh = self._files.open()
        os.close(self._lock)
        os.close(self._queue)
        self._lock, self._queue = fresh._lock, fresh._queue
        fresh._lock = fresh._queue = -1

    def leave_queue(self) -> None:
        """Let the next writer wait for the lock."""
        fcntl.flock(self._queue, fcntl.LOCK_UN)

    def release(self) -> None:
        """Let the next writer take the lock."""
        fcntl.flock(self._lock, fcntl.LOCK_UN)

    def count_commit(self) -> None:
        """Count one commit; only while holding the lock."""
        # The counter is only a hint: a full disk must not turn a commit into a failure.
        with contextlib.suppress(OSError):
            count = int.from_bytes(os.pread(self._lock, 8, 0), "little") + 1
            os.pwrite(self._lock, count.to_bytes(8, "little"), 0)

    def close(self) -> None:
        """Release everything, for good; closing twice is harmless."""
        if self._lock >= 0:
            os.close(self._lock)
            os.close(self._queue)
            self._lock = self._queue = -1

    def __del__(self) -> None:
        # A connection that was left to the garbage collector must not block other writers.
        self.close()


def is_removed(file: int) -> bool:
    """Whether an open file was deleted."""
    return os.fstat(file).st_nlink == 0


def _flock(file: int, patience_seconds: float) -> None:
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
