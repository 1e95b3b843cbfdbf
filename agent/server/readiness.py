"""Whether the database answers, asked at most once a second however often `/readyz` is."""

import asyncio
from collections.abc import Callable
from typing import Final

from agent.server.db_pool import DbPool

KEPT_SECONDS: Final = 1.0


class Readiness:
    """Asks the database, and keeps its answer for a second."""

    def __init__(self, read_pool: DbPool, monotonic: Callable[[], float]) -> None:
        self._read_pool = read_pool
        self._monotonic = monotonic
        self._asked_at = float("-inf")
        self._problem: Exception | None = None
        self._asking = asyncio.Lock()

    async def check(self) -> None:
        """Raise what the database raised when it was last asked."""
        async with self._asking:
            if self._monotonic() - self._asked_at >= KEPT_SECONDS:
                self._problem = await self._ask()
                self._asked_at = self._monotonic()
        if self._problem is not None:
            raise self._problem

    async def _ask(self) -> Exception | None:
        try:
            await self._read_pool.read(lambda connection: connection.check())
        except Exception as problem:
            return problem.with_traceback(None)
        return None
