"""Listens to the file system, so that a change of a watched path is polled at once.

It watches directories only, each by itself: a file that is replaced takes its watch with it, and the
library would follow symbolic links below a directory. For a path that does not exist it watches the
nearest directory above. New directories are added after the next change. All listeners share one watch
(`directory_watch`). All of it is a hint: what the file system does not report, the next poll finds.
"""

import asyncio
import importlib.util
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final

import structlog

from agent.triggers.watchers import poll_threads
from agent.triggers.watchers.paths.directory_watch import Concerns, DirectoryWatch
from agent.triggers.watchers.paths.path_scan import Listing, WatchedPath, directories
from agent.triggers.watchers.source import PollContext

_APART_SECONDS: Final = 0.5
"""The least time between two wakes: the agent's own files may be in the directory."""
_LIST_SECONDS: Final = 10.0
"""A path whose directories cannot be listed in this time is on a file system that hangs."""

log = structlog.get_logger(__name__)


def open_listener(keys: dict[str, Any]) -> "PathListener | None":
    """Return a listener, or None without the library: polling suffices."""
    if not has_library():
        _remark_missing_library()
        return None
    return PathListener(keys)


def has_library() -> bool:
    """Whether the library is installed that listens."""
    return importlib.util.find_spec("watchfiles") is not None


@cache
def _remark_missing_library() -> None:
    """Log once that paths are polled only."""
    log.info("watch.paths_polled", reason="watchfiles is not installed")


class PathListener:
    """Wakes the watcher when a directory of its path changes."""

    def __init__(self, keys: dict[str, Any], apart_seconds: float = _APART_SECONDS) -> None:
        self._keys = keys
        self._apart_seconds = apart_seconds

    async def listen(self, context: PollContext, wake: Callable[[], None]) -> None:
        """Call `wake` when it listens, and after changes, until cancelled.

        The system may refuse to watch more directories: then an `OSError` ends it.
        """
        path = WatchedPath.of(self._keys, context.workflow_path)
        shared: DirectoryWatch = context.resources.setdefault(
            "directories", DirectoryWatch(poll_threads.threads_of(context))
        )
        changed = asyncio.Event()
        with shared.join(changed.set) as member:
            listed = await self._list(path, context)
            while True:
                try:
                    await shared.watch(member, listed.directories, concerns(path, listed))
                except FileNotFoundError:
                    # Removed before it could be watched.
                    await asyncio.sleep(self._apart_seconds)
                    listed = await self._list(path, context)
                    continue
                # What changed before is not reported: list again, and poll.
                now = await self._list(path, context)
                if now == listed and listed.is_there:
                    wake()
                while now == listed and not member.is_lost:
                    await changed.wait()
                    changed.clear()
                    if listed.is_there:
                        wake()
                    await asyncio.sleep(self._apart_seconds)
                    now = await self._list(path, context)
                listed = now

    async def _list(self, path: WatchedPath, context: PollContext) -> Listing:
        """List the directories in a thread; raise `TimeoutError` if the file system hangs."""
        stop = threading.Event()
        try:
            async with asyncio.timeout(_LIST_SECONDS):
                return await poll_threads.start(context, lambda: directories(path, stop))
        finally:
            stop.set()


def concerns(path: WatchedPath, listed: Listing) -> Concerns:
    """Return what tells changes of the watched files, and of directories, from others."""
    accepts = path.name_filter()

    def concerns(change: Any, changed: str) -> bool:
        if changed == path.root or path.root.startswith(f"{changed}/"):
            return True
        if not listed.is_directory:
            return False
        if accepts(changed.rpartition("/")[2]):
            return True
        # What was removed may have been a directory.
        return path.is_recursive and (change.name == "deleted" or Path(changed).is_dir())

    return concerns
