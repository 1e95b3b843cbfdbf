"""One watch of directories by the library `watchfiles`: opened, as far as the system allows, and read."""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

Changes = set[tuple[Any, str]]
"""The library's kind of change, and the path that changed."""

_STEP_MS: Final = 200
"""How often the library's thread checks for changes, and whether to stop."""
_MOST_TRIES: Final = 3


class WatchRefusedError(OSError):
    """The system does not watch the directories of a listener; polling finds its changes."""


@dataclass(eq=False)
class OpenWatch:
    """A watch of the library that is in force; changes are collected until `run` reports them."""

    directories: dict[str, int]
    changes: Generator[Changes, None, None]
    first: Changes
    stop: threading.Event

    @classmethod
    def open(cls, directories: dict[str, int]) -> "OpenWatch":
        """Open a watch of directories; raise what the system answers."""
        import watchfiles

        changes = watchfiles.watch(
            *directories,
            watch_filter=None,
            debounce=5 * _STEP_MS,
            step=_STEP_MS,
            # The generator opens the watch when it is first asked for changes: it must answer soon.
            # It gets no event to stop: then it would drop what it has collected.
            rust_timeout=_STEP_MS,
            yield_on_timeout=True,
            raise_interrupt=False,
            force_polling=False,
            recursive=False,
            # Else the library would hide every error of the system, its limits too.
            ignore_permission_denied=False,
        )
        return cls(directories, changes, next(changes, set()), threading.Event())

    def run(self, report: Callable[[Changes], None]) -> None:
        """Report changes until stopped; this runs in a thread of its own."""
        with contextlib.closing(self.changes), contextlib.suppress(RuntimeError):
            # The event loop may be closed meanwhile: a `RuntimeError`. Nothing listens any more.
            if self.first:
                report(self.first)
            for changes in self.changes:
                if changes:
                    report(changes)
                if self.stop.is_set():
                    return


def open_most(wanted: dict[str, int]) -> tuple[OpenWatch, str | None]:
    """Open a watch of all directories, or of as many as the system allows; and why not of all."""
    for _ in range(_MOST_TRIES):
        try:
            return OpenWatch.open(wanted), None
        except (FileNotFoundError, PermissionError):
            # One was removed, or closed to this user, before it could be watched.
            wanted = {path: inode for path, inode in wanted.items() if _is_readable(path, inode)}
        except (OSError, RuntimeError) as error:
            refusal = _refusal(error)
            break
    else:
        raise FileNotFoundError("directories are removed faster than they can be watched")
    opened = _open_part(wanted)
    if opened is None:
        raise WatchRefusedError(refusal)
    return opened, refusal


def _open_part(wanted: dict[str, int]) -> OpenWatch | None:
    """Open a watch of the first directories, as many as the system allows; None if it allows none."""
    paths = list(wanted)
    most, refused = 0, len(paths)
    while refused - most > 1:
        count = (most + refused) // 2
        watch = _open_again({path: wanted[path] for path in paths[:count]})
        if watch is None:
            refused = count
        else:
            # It would count towards the limit of the next try.
            watch.changes.close()
            most = count
    while most > 0:
        watch = _open_again({path: wanted[path] for path in paths[:most]})
        if watch is not None:
            return watch
        most //= 2
    return None


def _open_again(directories: dict[str, int]) -> OpenWatch | None:
    """Open a watch after another one was closed, which the library does in a thread of its own."""
    for _ in range(_MOST_TRIES):
        try:
            return OpenWatch.open(directories)
        except (OSError, RuntimeError):
            time.sleep(_STEP_MS / 1000)
    return None


def _refusal(error: Exception) -> str:
    """Return for a person why the system refuses."""
    return (
        f"the system refuses to watch more directories ({error}); on Linux,"
        " fs.inotify.max_user_watches and fs.inotify.max_user_instances limit them"
    )


def inode_of(path: str) -> int | None:
    """Return the inode of a path, None if it cannot be read."""
    try:
        return Path(path).stat().st_ino
    except OSError:
        return None


def _is_readable(path: str, inode: int) -> bool:
    return inode_of(path) == inode and os.access(path, os.R_OK)


def is_unicode(name: str) -> bool:
    """Whether the library can take a name; files in other directories are found by polling."""
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
