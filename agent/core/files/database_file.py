"""The files of SQLite databases that this process has open, each known by its device and inode.

A path does not identify a file: symlinks and hard links are other names of it, and another file may
take the name. Device and inode do, for as long as a descriptor is open.

**One descriptor for each file, for as long as the process uses the file.** POSIX drops all of a
process's locks on a file as soon as the process closes any descriptor of it, and with these locks
SQLite keeps others from its pages. So a descriptor is opened before the first connection to the file
and closed after the last; every connection and every lock of this process shares it.

The lock is an "open file description" lock on one byte far behind the end of the file. It conflicts
with nothing that SQLite locks, is not dropped when another descriptor is closed, and works where
`flock` would lock the whole file against SQLite (NFS, macOS).
"""

import errno
import fcntl
import os
import struct
import threading
from pathlib import Path
from typing import Final

from agent.core.quick_classes.quick_dataclasses import dataclass, field

CAN_LOCK: Final = hasattr(fcntl, "F_OFD_SETLK")
"""Whether the system has such locks: Linux does. Elsewhere a file beside the database is locked."""

_LOCK_BYTE: Final = 2**62
_REFUSED: Final = (errno.EACCES, errno.EAGAIN)
_FLOCK: Final = "hhqqi"
"""The C structure `flock`: type, base of the offset, offset, length, process."""

Identity = tuple[int, int]
"""Device and inode."""


@dataclass(slots=True, eq=False)
class OpenFile:
    """A file that is open in this process."""

    identity: Identity
    descriptors: list[int] = field(default_factory=list)
    """The first one is used. Others come from races, and closing them early would drop locks too."""
    users: int = 0
    owner: object | None = None
    """The object in this process that holds the lock."""

    def try_lock(self, owner: object) -> bool:
        """Take the lock unless another process, or another owner here, has it."""
        with _mutex:
            if self.owner is not None or not self._set(fcntl.F_WRLCK):
                return False
            self.owner = owner
            return True

    def unlock(self) -> None:
        """Give the lock back."""
        with _mutex:
            self._set(fcntl.F_UNLCK)
            self.owner = None

    def is_locked_elsewhere(self) -> bool:
        """Whether another process holds the lock; asking takes nothing."""
        request = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, _LOCK_BYTE, 1, 0)
        answer = fcntl.fcntl(self.descriptors[0], fcntl.F_OFD_GETLK, request)
        return bool(struct.unpack(_FLOCK, answer)[0] != fcntl.F_UNLCK)

    def _set(self, kind: int) -> bool:
        wanted = struct.pack(_FLOCK, kind, os.SEEK_SET, _LOCK_BYTE, 1, 0)
        try:
            fcntl.fcntl(self.descriptors[0], fcntl.F_OFD_SETLK, wanted)
        except OSError as error:
            if error.errno in _REFUSED:
                return False
            raise
        return True


_mutex = threading.RLock()
_files: dict[Identity, OpenFile] = {}


def identity_of(path: str | Path) -> Identity:
    """Return the identity of the file at a path now, links followed."""
    # Not by pathlib, which takes three times as long: every commit does this.
    status = os.stat(path)  # noqa: PTH116
    return status.st_dev, status.st_ino


def open_file(path: Path) -> OpenFile:
    """Open the file at a path, or share the open one; each call needs its own `give_back`."""
    with _mutex:
        while True:
            file = _files.get(identity_of(path)) or _opened(path)
            file.users += 1
            if _files.get(file.identity) is file:
                return file
            # Between the two lines the garbage collector has run in this thread, which passes the
            # mutex: a connection's `__del__` was the last user, and has closed the file.
            file.users -= 1
            _close(file)


def give_back(file: OpenFile) -> None:
    """Close a file without users in this process; its connections must be closed before."""
    with _mutex:
        file.users -= 1
        if file.users == 0:
            del _files[file.identity]
            _close(file)


def _close(file: OpenFile) -> None:
    for descriptor in file.descriptors:
        os.close(descriptor)
    file.descriptors.clear()


def _opened(path: Path) -> OpenFile:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        # Reading still works; SQLite reports what cannot be written.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    status = os.fstat(descriptor)
    identity = (status.st_dev, status.st_ino)
    file = _files.setdefault(identity, OpenFile(identity))
    file.descriptors.append(descriptor)
    return file
