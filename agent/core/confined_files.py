"""Files below one directory: no path and no symbolic link leads out of it.

Paths are walked one name at a time from the directory's own descriptor without following links, so
that a concurrent change of the tree cannot lead elsewhere either.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

_TOO_MANY_LINKS: Final = 40
"""ELOOP: what the system answers for a link where none may be followed."""


class ConfinementError(ValueError):
    """A path that could lead out of its directory."""


def names_of(path: str) -> list[str]:
    """Return the names of a relative path; refuse one that could lead out of its directory."""
    if path.startswith("/") or "\0" in path or "\\" in path:
        raise ConfinementError(f"{path!r} is not a path below the directory")
    names = [name for name in path.split("/") if name not in ("", ".")]
    if ".." in names:
        raise ConfinementError(f"{path!r} leads out of the directory: no .. is allowed")
    return names


@contextmanager
def opened(path: str | Path, flags: int = os.O_DIRECTORY, at: int | None = None) -> Iterator[int]:
    """Open a directory or a file for reading, and close it after the block."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | flags, dir_fd=at)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def directory_of(top: int, names: list[str], *, makes_directories: bool = False) -> Iterator[int]:
    """Open the directory that a list of names leads to, without following links."""
    if not names:
        yield top
        return
    if makes_directories:
        with suppress(FileExistsError):
            os.mkdir(names[0], dir_fd=top)
    flags = os.O_DIRECTORY | os.O_NOFOLLOW
    with (
        opened(names[0], flags, top) as inner,
        directory_of(inner, names[1:], makes_directories=makes_directories) as last,
    ):
        yield last


def read_file(top: int, names: list[str], most_bytes: int) -> bytes:
    """Return the content of a regular file; raise `OSError` with a reason for people otherwise."""
    if not names:
        raise OSError("it is a directory")
    with directory_of(top, names[:-1]) as parent, opened(names[-1], os.O_NOFOLLOW, parent) as file:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            raise OSError("it is not a regular file")
        if status.st_size > most_bytes:
            raise OSError(f"it is larger than {most_bytes} bytes")
        content = bytearray()
        while chunk := os.read(file, 1_048_576):
            content += chunk
            if len(content) > most_bytes:
                raise OSError(f"it is larger than {most_bytes} bytes")
        return bytes(content)


def reason_of(problem: OSError) -> str:
    """Return why a file cannot be used, without the directory's own path."""
    if isinstance(problem, NotADirectoryError) or problem.errno == _TOO_MANY_LINKS:
        return "it is not a directory, or a symbolic link, which is not followed"
    return problem.strerror or str(problem) or type(problem).__name__
