"""Whether the database responds, checked at most once a second for all calls of `/readyz`."""

import asyncio
from collections.abc import Callable
from typing import Final

from agent.server.db_pool import DbPool

CACHE_SECONDS: Final = 1.0


class Readiness:
    """Checks the database and caches the result for a second."""

    def __init__(self, read_pool: DbPool, monotonic: Callable[[], float]) -> None:
        self._read_pool = read_pool
        self._monotonic = monotonic
        self._checked_at = float("-inf")
        self._problem: Exception | None = None
        self._checking = asyncio.Lock()

    async def check(self) -> None:
        """Raise the error of the last check, if it failed."""
        async with self._checking:
            if self._monotonic() - self._checked_at >= CACHE_SECONDS:
                self._problem = await self._query()
                self._checked_at = self._monotonic()
        if self._problem is not None:
            raise self._problem

    async def _query(self) -> Exception | None:
        try:
            await self._read_pool.read(lambda connection: connection.check())
        except Exception as error:
            return error.with_traceback(None)
        return None
