"""Files that no value of a task may open: what the agent itself writes, and its configuration.

A model that read the owner's token could answer approvals. A file is known by its directory and name, and
by its inode: neither another path nor a hard link leads to it. With it all files are private that are
named after it, as are those that SQLite, a restore or an unfinished write leave beside it.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

PRIVATE: Final = "it is a private file of the agent itself, which no task opens"

_BESIDE: Final = (".lock", ".unfinished")
"""What the agent writes in place of the suffix of a file while it changes it."""

_Identity = tuple[int, int]


class PrivateFiles:
    """The private files and directories as they are now; some may not exist yet."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._names: dict[_Identity, set[str]] = {}
        """By directory: private are these names, and those that begin with one and a dot or a dash."""
        self._inodes: set[_Identity] = set()
        for path in map(Path, paths):
            try:
                names = self._names.setdefault(_identity(path.parent.stat()), set())
                names |= {path.name, *(path.stem + suffix for suffix in _BESIDE)}
                self._inodes.add(_identity(path.stat()))
            except OSError:
                continue

    def has(self, parent: int, name: str) -> bool:
        """Whether a name in an open directory is private, or a link to what is, or in what is."""
        names = self._names.get(_identity(os.fstat(parent)), ())
        if any(name == each or name.startswith((f"{each}.", f"{each}-")) for each in names):
            return True
        try:
            status = os.stat(name, dir_fd=parent)
        except OSError:
            status = None
        if status is not None and _identity(status) in self._inodes:
            return True
        return self._is_below(parent)

    def _is_below(self, directory: int) -> bool:
        """Whether an open directory is private, or any that it is in."""
        current = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory)
        try:
            seen = None
            while (identity := _identity(os.fstat(current))) != seen:
                if identity in self._inodes:
                    return True
                seen = identity
                outer = os.open("..", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=current)
                os.close(current)
                current = outer
        except PermissionError:
            # Above it there is nothing of the agent's own user.
            return False
        finally:
            os.close(current)
        return False


def _identity(status: os.stat_result) -> _Identity:
    return status.st_dev, status.st_ino
