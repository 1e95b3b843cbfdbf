"""Counts of events by type for `/metrics`, read from the event log at each scrape.

The log has the commits of every process: workers, operators' commands, recovery. Counting on demand
adds nothing to a worker's commit.
"""

import asyncio
from collections import Counter
from typing import Final

from agent.server.db_pool import DbPool
from agent.store import event_log
from agent.store.channels.cursors import LogPosition
from agent.store.db.database import Connection
from agent.store.read import views

_PAGE: Final = 50_000
"""Events counted per read, so that the first scrape after a while does not hold a thread long."""


class EventCounts:
    """The number of events of each type since a cursor in the log."""

    def __init__(self, read_pool: DbPool, cursor: LogPosition | None) -> None:
        self._read_pool = read_pool
        self._cursor = cursor
        self._counts: Counter[str] = Counter()
        self._counting = asyncio.Lock()

    async def current(self) -> Counter[str]:
        """Return the counts up to the newest readable event."""
        # One at a time: two readers from the same cursor would count everything twice.
        async with self._counting:
            if self._cursor is None:
                self._cursor = await self._read_pool.read(views.latest_event)
            is_end = False
            while not is_end:
                counted, self._cursor, is_end = await self._read_pool.read(self._count)
                self._counts.update(counted)
            return self._counts.copy()

    def _count(self, connection: Connection) -> tuple[dict[str, int], LogPosition, bool]:
        assert self._cursor is not None
        return event_log.count_after(connection, self._cursor, _PAGE)
