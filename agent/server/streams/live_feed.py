"""Notifies open pages that their content has changed, as Server-Sent Events.

One reader of the event log serves all pages: fifty streams that each read it would cost the worker a
good part of its throughput. A message says only "there is something new up to this cursor"; the page
then fetches itself again (`agent.server.pages.framework.rendering`). While the worker is busy, messages are
further apart the more pages are open (`space_seconds`).
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Any, Final

from agent.server.access.grants import TokenGrant
from agent.server.db_pool import DbPool
from agent.server.problems import Problem, retry_later
from agent.server.token_shares import TokenShares
from agent.store import event_log
from agent.store.channels.cursors import LogPosition
from agent.store.db.database import StoreError
from agent.store.read import views

_POLL_SECONDS: Final = 0.5
"""Commits of other processes are found by polling."""
_SPACE_SECONDS: Final = 0.25
_BUSY_EVENTS_PER_SECOND: Final = 200.0
"""More than a person's tasks cause; a slow machine under load has more as well."""
_BUSY_SECONDS: Final = 4.0
"""With a poll and the fetch of the page, a change shows within five seconds."""
_MIN_BUSY_SECONDS: Final = 1.0
_BUSY_SECONDS_PER_PAGE: Final = 0.06
_MOST_EVENTS: Final = 1000
"""More events than this since the last message: every page counts as changed."""
_KEEPALIVE_SECONDS: Final = 15.0
_CHECK_SECONDS: Final = 1.0
"""How often a stream checks whether its session was revoked."""


@dataclass(eq=False, slots=True)
class _Page:
    """An open page."""

    tasks: frozenset[str]
    """It shows only these tasks; empty: all of them."""
    has_news: asyncio.Event = field(default_factory=asyncio.Event)


def space_seconds(events: int, seconds: float, pages: int) -> float:
    """Return the time to the next message, after this number of events in these seconds.

    Each message lets every page fetch itself, which takes time from a busy worker.
    """
    if events <= _BUSY_EVENTS_PER_SECOND * seconds:
        return _SPACE_SECONDS
    return min(_BUSY_SECONDS, _MIN_BUSY_SECONDS + _BUSY_SECONDS_PER_PAGE * pages)


class LiveFeed:
    """All open pages of a server."""

    def __init__(self, loop: asyncio.AbstractEventLoop, read_pool: DbPool, max_pages: int) -> None:
        self._loop = loop
        self._read_pool = read_pool
        self._shares = TokenShares(max_pages, "too many pages are open")
        self._pages: set[_Page] = set()
        self._cursor: LogPosition | None = None
        self._wakeup = asyncio.Event()
        self._is_notified = False
        self._is_closed = False
        self._reader: asyncio.Task[None] | None = None

    def notify(self, _events: list[tuple[Any, ...]]) -> None:
        """Wake the reader after a commit; called in the worker's loop, once between two reads."""
        if self._pages and not self._is_notified and not self._loop.is_closed():
            self._is_notified = True
            self._loop.call_soon_threadsafe(self._wakeup.set)

    def close(self) -> None:
        """End all streams; pages connect again."""
        self._is_closed = True
        self._wakeup.set()
        for page in self._pages:
            page.has_news.set()

    def check(self, grant: TokenGrant) -> None:
        """Refuse a new stream if the server is stopping, or has too many in all or of this session."""
        if self._is_closed:
            raise retry_later(503, "stopping", "the agent is stopping")
        self._shares.check(grant)

    async def stream(
        self,
        tasks: frozenset[str],
        every_seconds: float | None,
        grant: TokenGrant,
        is_allowed: Callable[[], bool],
    ) -> AsyncIterator[bytes]:
        """Yield a message for each change of these tasks, or of any; call `check` first.

        A page whose data change without events also gets one `every_seconds`. The last message of a
        revoked session says so: the page then shows that it is signed out.
        """
        page = _Page(tasks)
        self._pages.add(page)
        if self._reader is None or self._reader.done():
            self._reader = asyncio.create_task(self._read_events())
        with ExitStack() as leaving:
            leaving.callback(self._pages.discard, page)
            leaving.enter_context(self._shares.taken(grant))
            yield b"retry: 1000\n\n"
            idle_seconds = shown_seconds = 0.0
            while not self._is_closed:
                if not is_allowed():
                    yield b"event: signed-out\ndata:\n\n"
                    return
                with suppress(TimeoutError):
                    async with asyncio.timeout(_CHECK_SECONDS):
                        await page.has_news.wait()
                idle_seconds += _CHECK_SECONDS
                shown_seconds += _CHECK_SECONDS
                is_due = every_seconds is not None and shown_seconds >= every_seconds
                if (page.has_news.is_set() or is_due) and not self._is_closed:
                    page.has_news.clear()
                    idle_seconds = shown_seconds = 0.0
                    yield self._message()
                elif idle_seconds >= _KEEPALIVE_SECONDS:
                    idle_seconds = 0.0
                    yield b": still here\n\n"

    def _message(self) -> bytes:
        xid, event_id = self._cursor or (0, 0)
        return f"event: change\ndata: {xid}-{event_id}\n\n".encode()

    async def _read_events(self) -> None:
        """Read the log as long as there are pages."""
        self._cursor = None
        read_at = self._loop.time()
        while self._pages and not self._is_closed:
            self._is_notified = False
            self._wakeup.clear()
            changed, events = await self._read()
            seconds, read_at = self._loop.time() - read_at, self._loop.time()
            for page in self._pages:
                if changed is None or (changed and not page.tasks) or page.tasks & changed:
                    page.has_news.set()
            await asyncio.sleep(space_seconds(events, seconds, len(self._pages)))
            with suppress(TimeoutError):
                async with asyncio.timeout(_POLL_SECONDS):
                    await self._wakeup.wait()

    async def _read(self) -> tuple[set[str] | None, int]:
        """Return the tasks that changed since the last read, None for all, and how many events there were."""
        try:
            if self._cursor is None:
                # Pages fetch themselves again when their stream opens: nothing before it is missed.
                self._cursor = await self._read_pool.read(views.latest_event)
                return set(), 0
            cursor = self._cursor
            changed, events, self._cursor = await self._read_pool.read(
                lambda connection: event_log.changed_tasks(connection, cursor, _MOST_EVENTS)
            )
            return changed, events
        except (Problem, StoreError):
            # Overloaded, or no database at the moment: the streams stay open.
            return set(), 0
