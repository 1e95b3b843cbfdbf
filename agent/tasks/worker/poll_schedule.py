"""When a worker polls: after a notification, at intervals, and less often while it can start nothing.

Tasks stay due while no slot is free, while a step runs isolated, and while another process holds their
rows. Each poll for them costs transactions and finds the same tasks, so a backoff spaces these out.
"""

from collections.abc import Callable
from typing import Final

from agent.core.backoff import Backoff
from agent.tasks.commit.batch import TxResult
from agent.tasks.commit.pipeline import InFlightTx

FIRST_SECONDS: Final = 0.03
BUSY_POLL_SECONDS: Final = 0.1
"""How soon a worker that is busy, or waits for a slot, polls for changes to its attempts."""
_SHORTEST_SECONDS: Final = 0.001
"""Of a wait: a shorter one may be lost in rounding, and then be repeated without end."""


class PollSchedule:
    """The times at which one worker polls, and claims the work that a poll found."""

    def __init__(self, poll_seconds: float, lease_seconds: float) -> None:
        self._next_claim = float("-inf")
        self.set_intervals(poll_seconds, lease_seconds)
        self._has_changes = False
        """Whether another process has changed something since the last poll."""
        self._last_poll = 0.0

    def set_intervals(self, poll_seconds: float, lease_seconds: float) -> None:
        """Poll this often from now on."""
        self._backoff = Backoff(FIRST_SECONDS, poll_seconds)
        # Poll even when busy: the death of a worker sends no notification.
        self._interval_seconds = min(poll_seconds, lease_seconds / 4)
        self._is_requested = True

    @property
    def is_backing_off(self) -> bool:
        """Whether the last poll found due work, and none of it could be started."""
        return self._backoff.failures > 0

    def request(self) -> None:
        """Poll soon."""
        self._is_requested = True

    def on_other_commit(self) -> None:
        """Poll soon: another process has committed something."""
        self._is_requested = self._has_changes = True

    def poll_delay(self, now: float, *, is_idle: bool) -> float | None:
        """Return in how many seconds to poll: 0 is now, None if there is no reason to."""
        since = now - self._last_poll
        if not self._is_requested and since < self._interval_seconds:
            return None
        if (is_idle and not self.is_backing_off) or since >= BUSY_POLL_SECONDS:
            return 0.0
        return max(BUSY_POLL_SECONDS - since, _SHORTEST_SECONDS)

    def begin_poll(self) -> bool:
        """Begin a poll; return whether another process has changed something."""
        has_changes, self._has_changes = self._has_changes, False
        self._is_requested = False
        return has_changes

    def end_poll(self, now: float) -> None:
        """Record when a poll was made."""
        self._last_poll = now

    def claim_delay(
        self, due_in: float | None, now: float, *, has_changes: bool, has_slot: Callable[[], bool]
    ) -> float | None:
        """Return in how many seconds to claim: 0 or less is now, None if nothing is due."""
        if due_in is None or due_in > 0:
            # The step that could not be started is no longer due: another worker has claimed it.
            self._note_progress()
            return due_in
        # A free slot may serve work that another process has just made due.
        if (has_changes and has_slot()) or self._next_claim <= now:
            return due_in
        return self.backoff_delay(now)

    def backoff_delay(self, now: float) -> float:
        """Return how long to wait before due work is tried again."""
        return max(self._next_claim - now, _SHORTEST_SECONDS)

    def note_commit(
        self, tx: InFlightTx, result: TxResult, now: float, is_anything_due: Callable[[], bool]
    ) -> None:
        """Record whether a transaction started steps, or left due steps that it could not start."""
        if result.claimed or not tx.batch.is_empty:
            self._note_progress()
            if result.has_locked:
                self.request()
        elif tx.capacity.must_query_due and (result.has_locked or is_anything_due()):
            self._next_claim = now + self._backoff.next_seconds()

    def _note_progress(self) -> None:
        self._backoff.reset()
        self._next_claim = float("-inf")
