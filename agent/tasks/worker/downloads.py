"""Large values on their way back from a store outside the database, for attempts that need them.

The database's thread never reads from such a store: an attempt whose values are missing waits beside
the others until they were fetched here.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

import structlog

from agent.store.db.database import StoreError
from agent.tasks.worker.outages import Outages

log = structlog.get_logger(__name__)

_AT_ONCE: Final = 4


class Downloads:
    """Fetches what claimed steps wait for, each address once, until it is there."""

    def __init__(
        self,
        outages: Outages,
        supply: Callable[[str, bytes | None], Awaitable[None]],
        tell: Callable[[str, str], None],
    ) -> None:
        """Take how a value is handed on, and how those who wait are told of a failure."""
        self._outages = outages
        self._supply = supply
        self._tell = tell
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._at_once = asyncio.Semaphore(_AT_ONCE)

    @property
    def is_busy(self) -> bool:
        """Whether something is being fetched."""
        return bool(self._tasks)

    def fetch(self, addresses: Iterable[str]) -> None:
        """Fetch what is missing; what nobody waits for any more is given up."""
        wanted = set(addresses)
        for address in set(self._tasks) - wanted:
            self._tasks.pop(address).cancel()
        for address in wanted - set(self._tasks):
            self._tasks[address] = asyncio.get_running_loop().create_task(self._fetch(address))

    def close(self) -> None:
        """Give everything up."""
        self.fetch(())

    async def _fetch(self, address: str) -> None:
        is_told = False
        while True:
            try:
                async with self._at_once:
                    content = await self._outages.call(
                        address, lambda: self._outages.blob_stores.read_now(address)
                    )
            except StoreError as error:
                if not is_told:
                    is_told = True
                    log.warning("attempts.delayed", fault=str(error.fault), error=error.message)
                    self._tell(address, error.message)
                await self._outages.until_next_try(address)
            else:
                break
        self._tasks.pop(address, None)
        await self._supply(address, content)
