"""One thread that watches the directories of all `path` watchers of a daemon.

The library polls its own list of changes in a thread per watch: a thousand of them would wake five
thousand times a second, and Linux allows a user 128 (`fs.inotify.max_user_instances`). So all listeners
share one. The library cannot add a directory to a watch: when the directories change, a new watch is
opened before the old one is closed, and no change between the two is missed.

The system limits how many directories a user may watch. Beyond the limit, listeners that came later get
`WatchRefusedError`, and the system is asked again after a while. `open_watch` is the library's part.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Set
from dataclasses import dataclass, field
from typing import Any, Final

import structlog

from agent.core.thread_bridge import UnboundedThreads
from agent.triggers.watchers.paths import open_watch
from agent.triggers.watchers.paths.open_watch import Changes, OpenWatch, WatchRefusedError

log = structlog.get_logger(__name__)

Concerns = Callable[[Any, str], bool]
"""Whether a change of a path concerns a listener: called with the library's change and the path."""

_SETTLE_SECONDS: Final = 0.1
"""Listeners that begin within this time share one new watch."""
_SECONDS_PER_DIRECTORY: Final = 0.0005
"""The least time between two watches, for each directory: opening one costs a twentieth of it."""
_OPEN_SECONDS: Final = 30.0
"""A watch that takes longer hangs: a network file system does not respond."""
_REFUSED_SECONDS: Final = 300.0
"""How long a refusal of the system holds; afterwards it is asked again."""
_COMPARE_SECONDS: Final = 300.0
"""How often directories are compared with what is watched: some ways to replace them send no notice."""


@dataclass(eq=False)
class Member:
    """One listener: its directories, and what it is called back for."""

    notify: Callable[[], None]
    """Called in the event loop after a change that concerns it."""
    directories: dict[str, int] = field(default_factory=dict)
    """With their inodes: a directory that was made again is another one."""
    concerns: Concerns = lambda _change, _path: True
    is_lost: bool = False
    """Whether one of the directories was deleted: a new one may have the same name and inode."""
    watched: "asyncio.Future[None] | None" = None
    """Done once the directories are watched, or refused."""


class DirectoryWatch:
    """The watch that all listeners of one event loop share."""

    def __init__(self, threads: UnboundedThreads) -> None:
        self._threads = threads
        self._members: dict[Member, None] = {}
        self._has_changed = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._current: OpenWatch | None = None
        self._reading: asyncio.Future[None] | None = None
        """Done when the thread of the last watch has ended."""
        self._routes: dict[str, list[Member]] = {}
        """The listeners of each directory; replaced as a whole, since another thread reads it."""
        self._refused: tuple[float, str] | None = None
        """When the system refused, and why."""

    @property
    def directories(self) -> int:
        """How many directories are watched now."""
        return 0 if self._current is None else len(self._current.directories)

    @contextlib.contextmanager
    def join(self, notify: Callable[[], None]) -> Iterator[Member]:
        """Let a listener take part for as long as the block lasts."""
        member = Member(notify)
        self._members[member] = None
        try:
            yield member
        finally:
            del self._members[member]
            self._has_changed.set()

    async def watch(self, member: Member, directories: dict[str, int], concerns: Concerns) -> None:
        """Watch these directories for a listener from now on; return once that is in force.

        Raises `FileNotFoundError` if one of them is gone, `WatchRefusedError` if it cannot be watched.
        """
        member.directories, member.concerns, member.is_lost = directories, concerns, False
        member.watched = asyncio.get_running_loop().create_future()
        self._has_changed.set()
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._run(), name="directory watch")
        await member.watched

    async def aclose(self) -> None:
        """Stop to watch."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait({self._running})
        self._close_current()

    async def _run(self) -> None:
        """Open a new watch whenever the directories have changed."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_COMPARE_SECONDS):
                    await self._has_changed.wait()
            if not self._has_changed.is_set():
                await self._compare()
                continue
            # One busy tree must not take the machine: each new watch costs as much as there are
            # directories.
            await asyncio.sleep(max(_SETTLE_SECONDS, _SECONDS_PER_DIRECTORY * self.directories))
            self._has_changed.clear()
            try:
                await self._follow()
            except Exception as error:
                # The library has errors of its own, of no common class.
                self._answer(WatchRefusedError(f"the directories cannot be watched: {error}"))

    async def _follow(self) -> None:
        """Watch what the listeners want, and answer those that wait."""
        wanted = {
            path: inode
            for member in self._members
            for path, inode in member.directories.items()
            if open_watch.is_unicode(path)
        }
        if self._refused is not None and time.monotonic() - self._refused[0] >= _REFUSED_SECONDS:
            self._refused = None
        if self._refused is not None and self._current is not None:
            # Asking again would cost a dozen tries for the same answer.
            wanted = {p: i for p, i in wanted.items() if self._current.directories.get(p) == i}
        self._set_routes()
        if not wanted:
            self._close_current()
        elif self._current is None or self._current.directories != wanted:
            await self._open(wanted)
        self._answer(None)

    def _set_routes(self) -> None:
        routes: dict[str, list[Member]] = {}
        for member in self._members:
            for path in member.directories:
                routes.setdefault(path, []).append(member)
        self._routes = routes

    async def _open(self, wanted: dict[str, int]) -> None:
        try:
            opened, refusal = await self._try(wanted)
        except WatchRefusedError as error:
            if self._current is None:
                raise
            opened, refusal = None, str(error)
        if refusal is not None and self._current is not None:
            # The watch in force counts towards the limit: without it there may be room. What changes
            # meanwhile is not reported, so every listener is notified.
            if opened is not None:
                opened.changes.close()
            await self._end_current()
            opened, refusal = await self._try(wanted)
            self._notify(list(self._members))
        assert opened is not None
        self._refused = None if refusal is None else (time.monotonic(), refusal)
        if refusal is not None:
            count = len(opened.directories)
            log.warning(
                "watch.paths_refused", error=refusal, watched=count, refused=len(wanted) - count
            )
        self._close_current()
        loop = asyncio.get_running_loop()

        def report(changes: Changes) -> None:
            notified = self._concerned(changes)
            if notified:
                deleted = {path for change, path in changes if change.name == "deleted"}
                loop.call_soon_threadsafe(self._notify, notified, deleted)

        self._current = opened
        self._reading = self._threads.start(lambda: opened.run(report))

    async def _try(self, wanted: dict[str, int]) -> tuple[OpenWatch, str | None]:
        opening = self._threads.start(lambda: open_watch.open_most(wanted))
        done, _ = await asyncio.wait({opening}, timeout=_OPEN_SECONDS)
        if not done:
            opening.add_done_callback(_close_late)
            raise WatchRefusedError("a file system does not respond")
        return opening.result()

    async def _end_current(self) -> None:
        """Close the watch in force, and wait until the system knows it."""
        self._close_current()
        if self._reading is not None:
            await asyncio.wait({self._reading}, timeout=_OPEN_SECONDS)

    def _concerned(self, changes: Changes) -> set[Member]:
        """Return the listeners that changes concern; called in the library's thread."""
        routes = self._routes
        concerned = set()
        for change, path in changes:
            for directory in (path, path.rpartition("/")[0] or "/"):
                for member in routes.get(directory, ()):
                    if member not in concerned and member.concerns(change, path):
                        concerned.add(member)
        return concerned

    def _answer(self, error: OSError | None) -> None:
        """Tell the listeners that wait whether their directories are watched."""
        watched = {} if self._current is None else self._current.directories
        for member in self._members:
            answer, member.watched = member.watched, None
            if answer is None or answer.done():
                continue
            missing = [
                path
                for path, inode in member.directories.items()
                if open_watch.is_unicode(path) and watched.get(path) != inode
            ]
            if not missing:
                answer.set_result(None)
            elif error is not None:
                answer.set_exception(error)
            elif self._refused is not None:
                answer.set_exception(WatchRefusedError(self._refused[1]))
            else:
                answer.set_exception(FileNotFoundError(missing[0]))

    def _notify(self, members: Iterable[Member], deleted: Set[str] = frozenset()) -> None:
        """Notify listeners; a directory that was deleted is no longer watched."""
        if self._current is not None:
            for path in self._current.directories.keys() & deleted:
                del self._current.directories[path]
        for member in members:
            if member in self._members:
                member.is_lost = member.is_lost or not deleted.isdisjoint(member.directories)
                member.notify()

    async def _compare(self) -> None:
        """Let listeners list their directories again that are other ones than those watched."""
        if self._current is None:
            return
        known = dict(self._current.directories)
        comparing = self._threads.start(
            lambda: {p for p, i in known.items() if open_watch.inode_of(p) != i}
        )
        done, _ = await asyncio.wait({comparing}, timeout=_OPEN_SECONDS)
        if done:
            replaced = comparing.result()
            self._notify(m for m in list(self._members) if not replaced.isdisjoint(m.directories))

    def _close_current(self) -> None:
        if self._current is not None:
            self._current.stop.set()
            self._current = None


def _close_late(opening: "asyncio.Future[tuple[OpenWatch, str | None]]") -> None:
    """Close a watch that was opened after the listeners gave up."""
    if not opening.cancelled() and opening.exception() is None:
        opening.result()[0].changes.close()
