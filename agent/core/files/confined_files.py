"""Files below one directory: no path and no symbolic link leads out of it.

Paths are walked one name at a time from the directory's own descriptor without following links, so
that a concurrent change of the tree cannot lead elsewhere either.
"""

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path


class OutsideError(ValueError):
    """A path could lead out of its directory."""


def parts_of(path: str) -> list[str]:
    """Return the names of a path below a directory; raise `OutsideError` if it could lead out."""
    if path.startswith("/") or "\0" in path or "\\" in path:
        raise OutsideError(f"{path!r} is not a path below the directory")
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise OutsideError(f"{path!r} leads out of the directory: no .. is allowed")
    return parts


@contextmanager
def opened(path: str | Path, flags: int = os.O_DIRECTORY, at: int | None = None) -> Iterator[int]:
    """Open a directory, or a file by other flags; `at` is the directory that holds it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | flags, dir_fd=at)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def opened_below(
    top: int, parts: Sequence[str], *, makes_directories: bool = False
) -> Iterator[int]:
    """Open the directory that is reached by these names, and by no link."""
    if not parts:
        yield top
        return
    if makes_directories:
        with suppress(FileExistsError):
            os.mkdir(parts[0], dir_fd=top)
    flags = os.O_DIRECTORY | os.O_NOFOLLOW
    with (
        opened(parts[0], flags, top) as inner,
        opened_below(inner, parts[1:], makes_directories=makes_directories) as last,
    ):
        yield last


def read_bytes(top: int, parts: Sequence[str], max_bytes: int) -> bytes:
    """Read a regular file below a directory; raise `OSError` for anything else, or a larger one."""
    if not parts:
        raise IsADirectoryError(None, "it is a directory")
    with opened_below(top, parts[:-1]) as parent, opened(parts[-1], os.O_NOFOLLOW, parent) as file:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(None, "it is not a regular file")
        if status.st_size > max_bytes:
            raise OSError(None, f"it is larger than {max_bytes:,} bytes")
        with os.fdopen(os.dup(file), "rb") as stream:
            # One byte more than allowed shows that it has grown meanwhile.
            content = stream.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise OSError(None, f"it is larger than {max_bytes:,} bytes")
    return content


def reason_of(error: OSError) -> str:
    """Return why a file cannot be read, without its directory's path."""
    if isinstance(error, NotADirectoryError) or error.errno == 40:
        return "it is not a directory, or a symbolic link, which is not followed"
    return error.strerror or type(error).__name__
