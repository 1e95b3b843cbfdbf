"""A floor under long polls and connections that end sooner than they should.

A proxy may answer a long poll at once, and a server may close a connection as soon as it is open.
Without a pause the agent would ask again as fast as its processor allows.
"""

import asyncio
import time
from typing import Final

from agent.core.backoff import Backoff

FIRST_SECONDS: Final = 0.5
LONGEST_SECONDS: Final = 10.0


class PollPacer:
    """Lengthens the pause between rounds that end early and bring nothing."""

    def __init__(self, expected_seconds: float, longest_seconds: float = LONGEST_SECONDS) -> None:
        self._backoff = Backoff(FIRST_SECONDS, longest_seconds)
        self._expected_seconds = expected_seconds
        """How long a round without news lasts where all is well."""
        self._began = 0.0

    def begin(self) -> None:
        """Begin a round."""
        self._began = time.monotonic()

    async def end(self, *, has_news: bool) -> None:
        """End a round; wait before the next one if this one was short and brought nothing."""
        if has_news or time.monotonic() - self._began >= self._expected_seconds:
            self._backoff.reset()
            return
        await asyncio.sleep(self._backoff.next_seconds())
