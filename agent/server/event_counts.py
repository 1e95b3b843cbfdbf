"""Counts of events by type, read from the event log when `/metrics` is asked for.

The log has what every process commits: workers, operators' commands, recovery. Counting on demand
costs a worker's commits nothing.
"""

import asyncio
from collections import Counter
from typing import Final

from agent.server.db_pool import DbPool
from agent.store import event_log
from agent.store.channels.cursors import Place
from agent.store.db.database import Connection
from agent.store.read import views

_PAGE: Final = 50_000
"""How many events one read counts: a scrape after a long silence holds no thread for long."""


class EventCounts:
    """How often events of each type were committed since a place in the log."""

    def __init__(self, read_pool: DbPool, place: Place | None) -> None:
        self._read_pool = read_pool
        self._place = place
        self._counts: Counter[str] = Counter()
        self._counting = asyncio.Lock()

    async def current(self) -> Counter[str]:
        """Return the counts up to the newest event that can be read."""
        # One at a time: two that count from the same place would count everything twice.
        async with self._counting:
            if self._place is None:
                self._place = await self._read_pool.read(views.latest_event)
            is_end = False
            while not is_end:
                counted, self._place, is_end = await self._read_pool.read(self._count)
                self._counts.update(counted)
            return self._counts.copy()

    def _count(self, connection: Connection) -> tuple[dict[str, int], Place, bool]:
        assert self._place is not None
        return event_log.count_after(connection, self._place, _PAGE)
