"""When a worker looks again at due work that it could not start: ever more seldom, until it can.

Tasks stay due while no slot is free, while a step runs isolated, and while another process holds
their rows. Each look costs transactions and finds the same tasks.
"""

from typing import Final

from agent.core.backoff import Backoff

FIRST_SECONDS: Final = 0.03
LOOK_SECONDS: Final = 0.1
"""How soon a worker that is busy, or waits for a slot, looks at what others did to its attempts."""


class PollBackoff:
    """Spaces out the looks of one worker at work that it cannot start."""

    def __init__(self, longest_seconds: float) -> None:
        self._backoff = Backoff(FIRST_SECONDS, longest_seconds)
        self._next = float("-inf")

    @property
    def is_needed(self) -> bool:
        """Whether the last look at due work started nothing and left it due."""
        return self._backoff.failures > 0

    def note_progress(self) -> None:
        """Take note that a slot may be free again, that something was started, or that nothing is due."""
        self._backoff.reset()
        self._next = float("-inf")

    def note_failure(self, now: float) -> None:
        """Take note that due work was looked at, stays due, and none of it could be started."""
        self._next = now + self._backoff.next_seconds()

    def seconds_left(self, now: float) -> float:
        """Return how long to leave due work alone."""
        return max(0.0, self._next - now)
