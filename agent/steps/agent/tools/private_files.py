"""Files that no tool of an agent may open: the agent's own tokens, database, audit log and configuration.

A model that read the owner's token could answer approvals. A file is known by its directory and name, and
by its inode: neither another path nor a hard link leads to it.
"""

import os
from collections.abc import Iterable
from pathlib import Path


class PrivateFiles:
    """The private files as they are now; some may not exist yet."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._names: set[tuple[int, int, str]] = set()
        self._inodes: set[tuple[int, int]] = set()
        for path in map(Path, paths):
            try:
                parent = path.parent.stat()
            except OSError:
                continue
            self._names.add((parent.st_dev, parent.st_ino, path.name))
            try:
                status = path.stat()
            except OSError:
                continue
            self._inodes.add((status.st_dev, status.st_ino))

    def has(self, parent: int, name: str) -> bool:
        """Whether a name in an open directory is a private file, or a link to one."""
        directory = os.fstat(parent)
        if (directory.st_dev, directory.st_ino, name) in self._names:
            return True
        if (directory.st_dev, directory.st_ino) in self._inodes:
            # A private directory, such as that of the backups.
            return True
        try:
            status = os.stat(name, dir_fd=parent)
        except OSError:
            return False
        return (status.st_dev, status.st_ino) in self._inodes
