"""How much room is left on the disks of some directories."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MEGABYTE: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class DiskSpace:
    """The room of one disk, named by the first of the directories on it."""

    path: Path
    free_bytes: int
    """Bytes that users without privileges may still write."""
    total_bytes: int


def measure(directories: Iterable[Path]) -> list[DiskSpace]:
    """Return the room of each disk once; a directory that is not there yet counts as its parent."""
    spaces: dict[int, DiskSpace] = {}
    for directory in directories:
        path = _existing(directory.absolute())
        try:
            device, disk = path.stat().st_dev, os.statvfs(path)
        except OSError:
            continue
        if device not in spaces:
            unit = disk.f_frsize
            spaces[device] = DiskSpace(path, disk.f_bavail * unit, disk.f_blocks * unit)
    return list(spaces.values())


def _existing(path: Path) -> Path:
    while not path.is_dir() and path != path.parent:
        path = path.parent
    return path
