"""uvicorn without its ten wake-ups a second, which a daemon at rest would pay for day and night."""

import asyncio
import contextlib
from typing import Final

import uvicorn

_DATE_SECONDS: Final = 1.0
"""How often the Date header of responses is renewed."""


class UvicornServer(uvicorn.Server):
    """Serves until `end`; it is created in the event loop that it runs in."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._ending = asyncio.Event()

    def end(self) -> None:
        """Begin to stop."""
        self.should_exit = True
        self._ending.set()

    async def main_loop(self) -> None:
        """Wait for the end, and renew the Date header meanwhile."""
        # uvicorn's own loop renews the header when its counter of tenths of a second is 0.
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_DATE_SECONDS):
                    await self._ending.wait()
