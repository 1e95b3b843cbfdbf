"""The one place where time is read.

Instants are whole microseconds since 1970 (UTC): both databases store and compare them as plain
integers. The engine never compares the clocks of two machines; `set_to` brings this process's
instants to the database's at connect, so that all workers on one database agree on the current instant.
"""

import time
from datetime import UTC, datetime
from functools import lru_cache

SECOND = 1_000_000
"""Microseconds in a second."""
CLOCK_ERROR_US = 60 * SECOND
"""A recorded time further in the future than this comes from a clock that ran ahead."""


class Clock:
    """Instants for stored times, a monotonic reading for durations measured in this process."""

    def __init__(self) -> None:
        self._offset_us = 0

    def now(self) -> int:
        """Return the current instant in microseconds since 1970."""
        return self.machine_now() + self._offset_us

    def machine_now(self) -> int:
        """Return the instant of this machine's own clock, which timers of other libraries follow."""
        return time.time_ns() // 1000

    def monotonic(self) -> float:
        """Return seconds from an arbitrary start that never jump."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Block the calling thread; never on an event loop."""
        time.sleep(seconds)

    def set_to(self, instant_us: int) -> None:
        """Make `now` agree with another clock, usually the database's."""
        self._offset_us = instant_us - self.machine_now()


def to_iso(instant_us: int | None) -> str | None:
    """Write an instant as people and programs read it: ISO 8601 in UTC, to the millisecond."""
    if instant_us is None:
        return None
    return _millisecond(instant_us // 1000)


# Logs have many instants of the same millisecond, and lists many of the same second.
@lru_cache(maxsize=256)
def _millisecond(milliseconds: int) -> str:
    second, rest = divmod(milliseconds, 1000)
    return f"{_second(second)}.{rest:03d}Z"


@lru_cache(maxsize=256)
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
