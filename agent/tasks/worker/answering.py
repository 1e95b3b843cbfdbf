"""Since when this process answers external workers without interruption.

Leases expire by time, and only time in which a worker could report counts: not the time before a start,
not an outage of the database, not the hours of a machine that slept, and not those that a corrected
clock adds.
"""

from typing import Final

from agent.core.clock import SECOND, Clock
from agent.tasks.rules.claiming import AnsweredTime

JUMP_US: Final = 2 * SECOND
"""The wall clock against the monotonic one: a larger difference is a jump."""


class Answering:
    """Watches the clocks; closed until a server takes the calls of workers."""

    def __init__(self, clock: Clock, lease_seconds: float) -> None:
        self._clock = clock
        self._lease_seconds = lease_seconds
        """A process that did nothing for this long was stopped: a commit is due three times in it."""
        self._since: int | None = None
        self._last_seen = 0.0
        self._offset_us = 0.0
        self._has_outage = False

    def open(self) -> None:
        """Begin to answer workers."""
        self._restart()

    def close(self) -> None:
        """Answer no more: no lease expires from now on."""
        self._since = None

    @property
    def is_open(self) -> bool:
        """Whether workers are answered; to be read by other threads too."""
        return self._since is not None

    def note_outage(self) -> None:
        """Record that the database could not be used: calls of workers failed."""
        self._has_outage = True

    def time(self) -> AnsweredTime | None:
        """Return the time until now in which workers were answered; None while they are not."""
        if self._since is None:
            return None
        gap = self._clock.monotonic() - self._last_seen
        jump = abs(self._offset() - self._offset_us)
        if self._has_outage or gap > self._lease_seconds or jump > JUMP_US:
            self._restart()
        self._last_seen, self._offset_us = self._clock.monotonic(), self._offset()
        return AnsweredTime(self._since, self._clock.now())

    def _restart(self) -> None:
        self._since = self._clock.now()
        self._has_outage = False
        self._last_seen, self._offset_us = self._clock.monotonic(), self._offset()

    def _offset(self) -> float:
        return self._clock.now() - self._clock.monotonic() * SECOND
