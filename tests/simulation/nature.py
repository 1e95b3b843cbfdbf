"""The engine's sources from outside: time, ids, chance, and the database's thread."""

import random
from collections.abc import Callable
from typing import TypeVar

from agent.core.clock import SECOND, Clock
from agent.core.ids import Source
from agent.core.thread_bridge import ThreadBridge
from tests.simulation.loop import SimulatedLoop

T = TypeVar("T")

EPOCH_US = 1_800_000_000 * SECOND


class SimulatedClock(Clock):
    """Shows the loop's virtual time; the wall clock may jump, the monotonic one never does."""

    def __init__(self, loop: SimulatedLoop) -> None:
        super().__init__()
        self._loop = loop
        self._jumped_us = 0
        self._furthest_us = 0
        self._reads = 0
        self.latest = 0
        """The latest instant that it ever showed: nothing on record is in the future of that."""

    def now(self) -> int:
        # No two reads of a real clock are equal.
        self._reads += 1
        now = EPOCH_US + int(self._loop.time() * SECOND) + self._jumped_us + self._reads
        self.latest = max(self.latest, now)
        return now

    def monotonic(self) -> float:
        return self._loop.time()

    def sleep(self, seconds: float) -> None:
        self._loop.pause(seconds)

    def set_to(self, instant_us: int) -> None:
        raise AssertionError("a file has no clock of its own")

    def jump(self, seconds: float) -> None:
        """Set the wall clock forward or back."""
        self._jumped_us += int(seconds * SECOND)
        self._furthest_us = max(self._furthest_us, self._jumped_us)

    def set_right(self) -> None:
        """Undo all that set the clock back: otherwise what is due would be as late as that."""
        self._jumped_us = self._furthest_us


class SeededSource(Source):
    """Ids of the real form, time first, with the rest drawn from a seed."""

    def __init__(self, clock: SimulatedClock, chance: random.Random) -> None:
        self._clock = clock
        self._chance = chance

    def new_id(self) -> str:
        moment = f"{self._clock.now() // 1000:012x}"
        rest = f"{self._chance.getrandbits(72):018x}"
        return f"{moment[:8]}-{moment[8:]}-7{rest[:3]}-8{rest[3:6]}-{rest[6:]}"

    def fraction(self) -> float:
        return self._chance.random()


class SimulatedLink(ThreadBridge):
    """The database's thread, without the thread: one piece of work after another."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop

    async def run(self, function: Callable[[], T]) -> T:
        return await self._loop.run_blocking(function)

    def close(self) -> None:
        """There is nothing to end."""
