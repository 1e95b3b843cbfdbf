"""Reads which files a watched path shows now, without following links out of it."""

import fnmatch
import os
import re
import stat
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from agent.core.ids import canonical_json, content_hash
from agent.triggers.watchers.item_checks import storable
from agent.triggers.watchers.source import SourceError

State = tuple[int, int, int]
"""The inode, the modification time in nanoseconds and the size of a file."""

MOST_FILES: Final = 200_000
"""The most files of one watcher; each costs some 40 bytes in the stored snapshot."""


@dataclass(frozen=True, slots=True)
class WatchedPath:
    """What a watcher watches."""

    root: str
    """Absolute; a file or a directory."""
    is_recursive: bool
    pattern: str | tuple[str, ...] | None

    @classmethod
    def of(cls, keys: dict[str, Any], workflow_path: Path | None) -> "WatchedPath":
        """Return the path that a definition names; relative ones start beside the workflow file."""
        try:
            root = Path(keys["path"]).expanduser()
        except RuntimeError as error:
            raise SourceError(f"{keys['path']}: {error}") from None
        base = Path.cwd() if workflow_path is None else workflow_path.parent
        match = keys.get("match")
        return cls(
            str(base.absolute() / root),
            bool(keys.get("recursive", False)),
            tuple(match) if isinstance(match, list) else match,
        )

    @property
    def selection(self) -> str:
        """A hash of all that decides which files are watched."""
        return content_hash(canonical_json([self.root, self.is_recursive, self.pattern]))[:16]

    def name_filter(self) -> Callable[[str], object]:
        """Return what accepts the names of the watched files."""
        if self.pattern is None:
            return lambda _: True
        patterns = [self.pattern] if isinstance(self.pattern, str) else self.pattern
        return re.compile("|".join(map(fnmatch.translate, patterns))).match


@dataclass(frozen=True, slots=True)
class Scan:
    """What one complete scan found."""

    is_file: bool | None
    """Whether the path is a file; None if nothing is there, though its directory is."""
    device: int
    """Of the file system that holds the directory."""
    files: dict[str, State]
    """By the path relative to the root; that of a watched file itself is empty."""


def scan(path: WatchedPath, stop: threading.Event) -> Scan:
    """Return the files that a path shows; raise `SourceError` if any of it cannot be read.

    Special files and symbolic links are skipped, and so are directories on which another file
    system is mounted. The root itself may be a link.
    """
    try:
        status = _status(path.root)
        if status is not None and stat.S_ISDIR(status.st_mode):
            return Scan(False, status.st_dev, _walk(path, status.st_dev, stop, path.name_filter()))
        # May raise, as it should: without its directory, nothing is known about a file.
        device = Path(path.root).parent.stat().st_dev
    except OSError as error:
        raise SourceError(f"{_shown(path.root, error)} cannot be read: {_reason(error)}") from None
    if status is None:
        return Scan(None, device, {})
    if not stat.S_ISREG(status.st_mode):
        raise SourceError(f"{storable(path.root)} is neither a file nor a directory")
    return Scan(True, device, {"": _state(status)})


@dataclass(frozen=True, slots=True)
class Listing:
    """The directories whose changes concern a watched path."""

    directories: dict[str, int]
    """With their inodes."""
    is_there: bool = True
    """Whether the path exists and can be read; if not, the directory is the nearest one above."""
    is_directory: bool = True


def directories(path: WatchedPath, stop: threading.Event) -> Listing:
    """Return the directories whose changes concern a watched path."""
    inodes: dict[str, int] = {}
    try:
        status = _status(path.root)
        if status is not None and not stat.S_ISDIR(status.st_mode):
            parent = Path(path.root).parent
            return Listing({str(parent): parent.stat().st_ino}, is_directory=False)
        if status is not None:
            if path.is_recursive:
                _walk(path, status.st_dev, stop, lambda _: False, inodes)
            else:
                # Only whether it can be read: it may have very many files.
                os.scandir(path.root).close()
                inodes[path.root] = status.st_ino
            return Listing(inodes)
    except (OSError, SourceError):
        pass
    return Listing(_nearest(path.root), is_there=False, is_directory=False)


def _nearest(root: str) -> dict[str, int]:
    """Return the nearest directory above a path that exists."""
    for parent in Path(root).parents:
        try:
            status = parent.stat()
        except OSError:
            continue
        if stat.S_ISDIR(status.st_mode):
            return {str(parent): status.st_ino}
    return {}


def _walk(
    path: WatchedPath,
    device: int,
    stop: threading.Event,
    accepts: Callable[[str], object],
    visited: dict[str, int] | None = None,
) -> dict[str, State]:
    files: dict[str, State] = {}
    waiting = [""]
    while waiting:
        parent = waiting.pop()
        directory = f"{path.root}/{parent}" if parent else path.root
        try:
            if visited is not None:
                visited[directory] = Path(directory).stat().st_ino
            with os.scandir(directory) as entries:
                for entry in entries:
                    if stop.is_set():
                        raise SourceError("the scan was stopped")
                    name = f"{parent}/{entry.name}" if parent else entry.name
                    if entry.is_dir(follow_symlinks=False):
                        if path.is_recursive and _is_on(entry, device):
                            waiting.append(name)
                    elif accepts(entry.name):
                        _add(files, name, entry)
        except (FileNotFoundError, NotADirectoryError):
            # A directory below was removed meanwhile; without the root nothing is known.
            if not parent:
                raise
    return files


def _add(files: dict[str, State], name: str, entry: "os.DirEntry[str]") -> None:
    try:
        status = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return
    if stat.S_ISREG(status.st_mode):
        files[name] = _state(status)
        if len(files) > MOST_FILES:
            raise SourceError(f"more than {MOST_FILES} files; narrow the watcher with `match`")


def _is_on(entry: "os.DirEntry[str]", device: int) -> bool:
    try:
        return entry.stat(follow_symlinks=False).st_dev == device
    except FileNotFoundError:
        return False


def _status(path: str) -> os.stat_result | None:
    try:
        return Path(path).stat()
    except FileNotFoundError:
        return None


def _state(status: os.stat_result) -> State:
    return status.st_ino, status.st_mtime_ns, status.st_size


def _shown(root: str, error: OSError) -> str:
    return storable(os.fsdecode(error.filename) if error.filename else root)


def _reason(error: OSError) -> str:
    return storable(error.strerror or str(error))
