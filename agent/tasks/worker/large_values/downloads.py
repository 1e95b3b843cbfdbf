"""Downloads of large values from a store outside the database, for attempts that need them.

The database thread never reads from such a store: an attempt whose values are missing waits beside the
others until this has downloaded them.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

import structlog

from agent.store.db.database import StoreError
from agent.tasks.worker.large_values.outages import Outages

log = structlog.get_logger(__name__)

_AT_ONCE: Final = 4


class Downloads:
    """Downloads the values that claimed steps wait for, each address once, with retries."""

    def __init__(
        self,
        outages: Outages,
        prepare: Callable[[str], Awaitable[None]],
        supply: Callable[[str, bytes | None], Awaitable[None]],
        record_delay: Callable[[str, str], None],
    ) -> None:
        """`supply` passes a value on, `prepare` is called before that.

        `record_delay` records a failure for the steps that wait.
        """
        self._outages = outages
        self._prepare = prepare
        self._supply = supply
        self._record_delay = record_delay
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._at_once = asyncio.Semaphore(_AT_ONCE)

    @property
    def is_busy(self) -> bool:
        """Whether a download is under way."""
        return bool(self._tasks)

    def fetch(self, addresses: Iterable[str]) -> None:
        """Download missing values, and cancel downloads that no step waits for."""
        wanted = set(addresses)
        for address in set(self._tasks) - wanted:
            self._tasks.pop(address).cancel()
        for address in wanted - set(self._tasks):
            self._tasks[address] = asyncio.get_running_loop().create_task(self._fetch(address))

    def close(self) -> None:
        """Cancel every download."""
        self.fetch(())

    async def _fetch(self, address: str) -> None:
        is_logged = False
        while True:
            try:
                async with self._at_once:
                    content = await self._outages.call(
                        address, lambda: self._outages.blob_stores.read_now(address)
                    )
            except StoreError as error:
                if not is_logged:
                    is_logged = True
                    log.warning("attempts.delayed", fault=str(error.fault), error=error.message)
                # At every failure: a step may have begun to wait since the last one.
                self._record_delay(address, error.message)
                await self._outages.until_next_try(address)
            else:
                break
        # Until then it counts as under way, and is not downloaded again.
        await self._prepare(address)
        self._tasks.pop(address, None)
        await self._supply(address, content)
