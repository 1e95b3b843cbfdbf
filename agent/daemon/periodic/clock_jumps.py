"""Notices that a clock was set, or that the machine slept, by comparison with the monotonic clock.

On Linux the monotonic clock stops while the machine sleeps, so a sleep shows as a jump forward.
"""

from dataclasses import dataclass
from typing import Final

from agent.core.clock import SECOND, Clock

JUMP_SECONDS: Final = 2.0
"""Smaller differences are corrections by a time server, or those of a slow read."""
_READ_SECONDS: Final = 0.1
_MOST_READS: Final = 5


@dataclass(frozen=True, slots=True)
class ClockJump:
    """By how many seconds the clocks moved beyond the time that passed."""

    machine_seconds: float
    """This machine's clock, which timers of APScheduler follow."""
    clock_seconds: float
    """The agent's clock: what `Clock.now` returns."""

    @property
    def has_moved_machine(self) -> bool:
        """Whether timers that follow the machine's clock are off."""
        return abs(self.machine_seconds) > JUMP_SECONDS

    @property
    def has_moved_clock(self) -> bool:
        """Whether instants in the database may be due earlier or later than they were."""
        return abs(self.clock_seconds) > JUMP_SECONDS


@dataclass(frozen=True, slots=True)
class _Reading:
    """How far the two clocks are ahead of the monotonic one."""

    machine_seconds: float
    clock_seconds: float


class ClockJumps:
    """Compares the clocks with their last reading."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last = self._read()

    def measure(self) -> ClockJump:
        """Return how far the clocks have jumped since the last `accept`."""
        now = self._read()
        return ClockJump(
            now.machine_seconds - self._last.machine_seconds,
            now.clock_seconds - self._last.clock_seconds,
        )

    def accept(self, jump: ClockJump) -> None:
        """Measure from an earlier reading on: a jump since then still counts."""
        self._last = _Reading(
            self._last.machine_seconds + jump.machine_seconds,
            self._last.clock_seconds + jump.clock_seconds,
        )

    def _read(self) -> _Reading:
        reading = None
        for _ in range(_MOST_READS):
            before = self._clock.monotonic()
            machine, instant = self._clock.machine_now(), self._clock.now()
            after = self._clock.monotonic()
            reading = _Reading(machine / SECOND - before, instant / SECOND - before)
            # A process that was stopped between two of these reads would see a jump.
            if after - before < _READ_SECONDS:
                break
        assert reading is not None
        return reading
