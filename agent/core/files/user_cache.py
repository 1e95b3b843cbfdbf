"""Results that commands keep between processes, in the user's cache directory.

An entry is named by the hash of all that its result follows from, so it is never out of date. Only this user
can have written it: a directory or a file that others can change, or that belongs to another user, is not
used. Without the directory, commands do the work again.
"""

import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Final

_MOST_ENTRIES: Final = 200
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


class UserCache:
    """One entry: a text, found by the hash of its inputs."""

    def __init__(self, kind: str, environment: Mapping[str, str], follows_from: bytes) -> None:
        self._directory = _directory(environment)
        self._name = f"{kind}-{sha256(follows_from).hexdigest()}"

    def read(self) -> str | None:
        """Return the text, if it was written before."""
        if self._directory is None:
            return None
        try:
            if not _is_private(self._directory.lstat()):
                return None
            descriptor = os.open(self._directory / self._name, os.O_RDONLY | os.O_NOFOLLOW)
        except OSError:
            return None
        with os.fdopen(descriptor, encoding="utf-8") as file:
            return file.read() if _is_private(os.fstat(descriptor)) else None

    def write(self, text: str) -> None:
        """Keep a text; a directory that cannot be written is no problem."""
        directory = self._directory
        if directory is None:
            return
        with suppress(OSError):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not _is_private(directory.lstat()):
                return
            self._make_room(directory)
            # Written beside its place and moved there: another process never reads a part of it.
            unfinished = directory / f"{self._name}.{os.getpid()}"
            descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
            unfinished.replace(directory / self._name)

    def _make_room(self, directory: Path) -> None:
        entries = sorted(directory.iterdir(), key=lambda entry: entry.lstat().st_mtime)
        for entry in entries[: max(0, len(entries) - _MOST_ENTRIES + 1)]:
            entry.unlink(missing_ok=True)


def _directory(environment: Mapping[str, str]) -> Path | None:
    if environment.get("XDG_CACHE_HOME", "").startswith("/"):
        return Path(environment["XDG_CACHE_HOME"], "agent")
    home = environment.get("HOME", "")
    return Path(home, ".cache", "agent") if home.startswith("/") else None


def _is_private(status: os.stat_result) -> bool:
    return status.st_uid == os.geteuid() and not status.st_mode & _OTHERS
