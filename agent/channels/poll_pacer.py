"""Pauses after long polls and connections that end too early.

A proxy may answer a long poll at once, and a server may close a connection as soon as it is open.
Without a pause the agent would poll in a busy loop.
"""

import asyncio
import time
from typing import Final

from agent.core.backoff import Backoff

FIRST_SECONDS: Final = 0.5
LONGEST_SECONDS: Final = 10.0


class PollPacer:
    """Pauses, longer each time, after rounds that end early without news."""

    def __init__(self, expected_seconds: float, longest_seconds: float = LONGEST_SECONDS) -> None:
        self._backoff = Backoff(FIRST_SECONDS, longest_seconds)
        self._expected_seconds = expected_seconds
        """How long a round without news normally lasts."""
        self._began = 0.0

    def begin(self) -> None:
        """Begin a round."""
        self._began = time.monotonic()

    async def end(self, *, has_news: bool) -> None:
        """End a round; pause if it was short and brought no news."""
        if has_news or time.monotonic() - self._began >= self._expected_seconds:
            self._backoff.reset()
            return
        await asyncio.sleep(self._backoff.next_seconds())
