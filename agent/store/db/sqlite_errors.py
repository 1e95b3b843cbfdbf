"""Maps errors of SQLite and of its file to a fault to act on, and a message for a person."""

import errno
import os
from pathlib import Path
from typing import Final

from agent.store.db.dialect import Fault

_LEAST_ROOM_BYTES: Final = 64 * 1024
"""Twice what SQLite adds to its index of the log at a time."""


def os_fault(error: OSError) -> Fault:
    """Map an error of the file system to a store error."""
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return Fault.READONLY
    return Fault.FULL if error.errno in (errno.ENOSPC, errno.EDQUOT) else Fault.LOST


def is_disk_full(path: Path) -> bool:
    """Whether the disk of a file has no room left."""
    try:
        disk = os.statvfs(path.parent)
    except OSError:
        return False
    return disk.f_bavail * disk.f_frsize < _LEAST_ROOM_BYTES


def locked(path: Path) -> str:
    """Return the message for a database that stays busy."""
    return f"another process keeps {path} locked"


def missing(path: Path) -> str:
    """Return the message for a file that is not there."""
    if not path.parent.is_dir():
        return f"the directory {path.parent} does not exist"
    return f"there is no database at {path}"


def message(fault: Fault, path: Path, error: Exception) -> str:
    """Return the message for an error of the library."""
    match fault:
        case Fault.BUSY:
            return locked(path)
        case Fault.FULL:
            return f"no room is left for {path}: {error}"
        case Fault.READONLY:
            return f"{path} cannot be written: {error}"
        case Fault.LOST:
            return f"cannot open {path}: {_why_not_opened(path) or error}"
        case Fault.CORRUPT:
            return f"{path} or its disk is damaged, or it is not a database of an agent: {error}"
        case Fault.DATA:
            return f"a row was refused: {error}"
        case Fault.DEFECT | Fault.STALE | Fault.REPLACED | Fault.UNREACHABLE:
            return f"a statement failed on {path}: {error}"


def _why_not_opened(path: Path) -> str | None:
    """Return why SQLite cannot open an existing file, if its directory is the reason."""
    is_effective = os.access in os.supports_effective_ids
    if path.is_file() and not os.access(path.parent, os.W_OK, effective_ids=is_effective):
        return "its directory cannot be written, which even readers need"
    return None
