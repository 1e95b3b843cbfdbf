"""Listens to the file system, so that a change of a watched path is polled at once.

It watches directories only, each by itself: a file that is replaced takes its watch with it, and the
library would follow symbolic links below a directory. New directories are added after the next change.
All of it is a hint: what the file system does not report, the next poll finds.
"""

import asyncio
import contextlib
import importlib.util
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final

import structlog

from agent.triggers.watchers import poll_threads
from agent.triggers.watchers.path_scan import WatchedPath, directories
from agent.triggers.watchers.source import PollContext

_ABSENT_SECONDS: Final = 5.0
"""How often to check for a path that does not exist yet."""
_APART_SECONDS: Final = 0.5
"""The least time between two wakes: the agent's own files may be in the directory."""
_STEP_MS: Final = 200
"""How often the library's thread checks for changes, and whether to stop."""
_STOP_SECONDS: Final = 2.0

log = structlog.get_logger(__name__)


def open_listener(keys: dict[str, Any]) -> "PathListener | None":
    """Return a listener, or None without the library: polling suffices."""
    if importlib.util.find_spec("watchfiles") is None:
        _remark_missing_library()
        return None
    return PathListener(keys)


@cache
def _remark_missing_library() -> None:
    """Log once that paths are polled only."""
    log.info("watch.paths_polled", reason="watchfiles is not installed")


class PathListener:
    """Wakes the watcher when a directory of its path changes."""

    def __init__(
        self,
        keys: dict[str, Any],
        absent_seconds: float = _ABSENT_SECONDS,
        apart_seconds: float = _APART_SECONDS,
    ) -> None:
        self._keys = keys
        self._apart_seconds = apart_seconds
        self._absent_seconds = absent_seconds

    async def listen(self, context: PollContext, wake: Callable[[], None]) -> None:
        """Call `wake` after changes, until cancelled.

        The system may refuse to watch more directories: then an `OSError` ends it.
        """
        path = WatchedPath.of(self._keys, context.workflow_path)
        stop = threading.Event()
        is_new = False
        try:
            while True:
                found = await poll_threads.start(context, lambda: directories(path, stop))
                if not found:
                    is_new = True
                    await asyncio.sleep(self._absent_seconds)
                    continue
                if is_new:
                    wake()
                # A directory may be removed before it can be watched.
                with contextlib.suppress(FileNotFoundError):
                    await self._watch(path, found, wake, context)
                is_new = True
                await asyncio.sleep(self._apart_seconds)
        finally:
            stop.set()

    async def _watch(
        self,
        path: WatchedPath,
        found: dict[str, int],
        wake: Callable[[], None],
        context: PollContext,
    ) -> None:
        """Wake after changes, until the directories are other ones."""
        changed, stop = asyncio.Event(), threading.Event()
        loop = asyncio.get_running_loop()
        ended = poll_threads.start(
            context,
            lambda: _notify(path, found, stop, lambda: loop.call_soon_threadsafe(changed.set)),
        )
        ended.add_done_callback(lambda _: changed.set())
        try:
            while True:
                await changed.wait()
                changed.clear()
                if ended.done():
                    ended.result()
                    return
                wake()
                await asyncio.sleep(self._apart_seconds)
                now = await poll_threads.start(context, lambda: directories(path, stop))
                if now != found:
                    return
        finally:
            stop.set()
            await asyncio.wait({ended}, timeout=_STOP_SECONDS)


def _notify(
    path: WatchedPath,
    found: dict[str, int],
    stop: threading.Event,
    report: Callable[[], object],
) -> None:
    """Report changes until stopped; this runs in a thread of its own."""
    import watchfiles

    changes = watchfiles.watch(
        *(directory for directory in found if _is_unicode(directory)),
        watch_filter=_filter(path),
        debounce=5 * _STEP_MS,
        step=_STEP_MS,
        stop_event=stop,
        raise_interrupt=False,
        force_polling=False,
        recursive=False,
        ignore_permission_denied=True,
    )
    for _ in changes:
        report()


def _is_unicode(name: str) -> bool:
    """Whether the library can take a name; files in other directories are found by polling."""
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _filter(path: WatchedPath) -> Callable[[Any, str], bool]:
    """Return what tells changes of the watched files, and of directories, from others."""
    accepts = path.name_filter()
    is_file = Path(path.root).is_file()

    def concerns(change: Any, changed: str) -> bool:
        if is_file or changed == path.root:
            return changed == path.root
        if accepts(changed.rpartition("/")[2]):
            return True
        # What was removed may have been a directory.
        return path.is_recursive and (change.name == "deleted" or Path(changed).is_dir())

    return concerns
