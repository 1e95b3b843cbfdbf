"""Renderings of pages, shared by viewers who may see and do the same.

A rendering belongs to an address and a set of scopes. It is made again only when the page's data
changed: `version` is read first, and an equal one means that the rendering still holds. A page that
received a message of the feed sends the cursor in it; a rendering that was made from a snapshot at or
after that cursor is served without a look at the database. What differs between viewers (CSRF tokens,
notices) is inserted afterwards by `rendering`.
"""

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from agent.server.db_pool import DbPool
from agent.server.pages.framework.page_request import PageRequest
from agent.store.channels.cursors import LogPosition
from agent.store.db.database import Connection
from agent.store.read import attention, overview, views
from agent.tasks.errors import NotFoundError

Version = Callable[[Connection, PageRequest], Hashable]
Fill = Callable[[str, PageRequest, Mapping[str, Any]], str]
"""Fills a template: its name, the request, the data."""

MOST_COUNTED: Final = 100
"""Of what waits for a person, the pages count no more."""
COUNT_SECONDS: Final = 60
"""How often a page whose content changes with events alone looks what waits for a person."""
_MAX_KEPT: Final = 64
_MAX_BYTES: Final = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True, eq=False)
class Page:
    """A page: its template, and the function that reads its data."""

    path: str
    template: str
    read: Callable[[Connection, PageRequest], Mapping[str, Any]]
    version: Version
    every_seconds: int | None
    """How often data that change without events are read again; the data's own `every_seconds` says otherwise."""


def by_latest_event(connection: Connection, _: PageRequest) -> Hashable:
    """Return a version that changes with every event of any task."""
    return views.latest_event(connection)


def by_task(connection: Connection, request: PageRequest) -> Hashable:
    """Return a version that changes with the task of the address, its children and its workflow."""
    version = overview.version(connection, request.params["task_id"])
    if version is None:
        raise NotFoundError(f"there is no task {request.params['task_id']}")
    return version


@dataclass(frozen=True, slots=True)
class Rendering:
    """A page as it is shown, with marks for values that differ between viewers."""

    text: str
    digest: str
    version: Hashable
    cursor: LogPosition
    made_at: float
    every_seconds: int | None
    """How long it holds while its version stays: data may change without an event."""


@dataclass(frozen=True, slots=True)
class _Read:
    version: Hashable
    cursor: LogPosition
    data: Mapping[str, Any] | None
    """None: the version has not changed."""


class Renderings:
    """The renderings that are kept, those used last at the end."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Hashable, Rendering] = OrderedDict()
        self._locks: dict[Hashable, asyncio.Lock] = {}
        self._bytes = 0
        self.made = 0
        """How many renderings were made."""

    def clear(self) -> None:
        """Drop all renderings: a change may leave a page's version unchanged."""
        self._kept.clear()
        self._bytes = 0

    async def get(
        self,
        page: Page,
        request: PageRequest,
        read_pool: DbPool,
        fill: Fill,
        notified_cursor: LogPosition | None,
    ) -> Rendering:
        """Return a rendering of a page's current data; one at a time for each address and scope.

        `notified_cursor` is the position of the event log in the message that the viewer received, if any.
        """
        if request.problem is not None:
            return await self._made(page, request, read_pool, fill, None)
        key = (request.path, tuple(sorted(request.items)), request.scopes)
        lock = self._locks.setdefault(key, asyncio.Lock())
        try:
            async with lock:
                kept = self._kept.get(key)
                if kept is not None and _is_new_enough(kept, notified_cursor):
                    return kept
                rendering = await self._made(page, request, read_pool, fill, kept)
                if not request.is_personal:
                    self._keep(key, rendering)
                return rendering
        finally:
            if not lock.locked():
                self._locks.pop(key, None)

    async def _made(
        self,
        page: Page,
        request: PageRequest,
        read_pool: DbPool,
        fill: Fill,
        kept: Rendering | None,
    ) -> Rendering:
        def read(connection: Connection) -> _Read:
            # The cursor first: rows read after it are at least as new.
            cursor = views.latest_event(connection)
            waiting = attention.count(
                connection, request.context.database.clock.now(), MOST_COUNTED
            )
            version = (page.version(connection, request), waiting)
            if kept is not None and kept.version == version and kept.every_seconds is None:
                return _Read(version, cursor, None)
            shown = {"every_seconds": page.every_seconds, "waiting_count": waiting}
            return _Read(version, cursor, {**shown, **page.read(connection, request)})

        found = await read_pool.read(read)
        if found.data is None:
            assert kept is not None
            return replace(
                kept, version=found.version, cursor=found.cursor, made_at=time.monotonic()
            )
        data = found.data
        # Outside of the snapshot, which must be short.
        text = await read_pool.run(lambda: fill(page.template, request, data))
        self.made += 1
        digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
        return Rendering(
            text, digest, found.version, found.cursor, time.monotonic(), data["every_seconds"]
        )

    def _keep(self, key: Hashable, rendering: Rendering) -> None:
        replaced = self._kept.pop(key, None)
        self._bytes += len(rendering.text) - (len(replaced.text) if replaced else 0)
        self._kept[key] = rendering
        while len(self._kept) > _MAX_KEPT or self._bytes > _MAX_BYTES:
            _, dropped = self._kept.popitem(last=False)
            self._bytes -= len(dropped.text)


def _is_new_enough(kept: Rendering, notified_cursor: LogPosition | None) -> bool:
    if notified_cursor is None or kept.cursor < notified_cursor:
        return False
    seconds = COUNT_SECONDS if kept.every_seconds is None else kept.every_seconds
    # Half the interval: two viewers receive one message at slightly different times.
    return time.monotonic() - kept.made_at < seconds / 2
