"""Who is dead: a worker whose turn has not moved for one lease by the observer's own clock.

No two machines' clocks are compared. However long ago the observer looked last, that counts as no
more than a third of the lease: a closed laptop or an hour without the database kills nobody, and an
observer that seldom gets to look still finds the dead in the end.
"""

from collections.abc import Iterable


class FailureDetector:
    """What one worker has seen of the others' turns."""

    def __init__(self, lease_seconds: float) -> None:
        self.lease_seconds = lease_seconds
        self._seen: dict[str, tuple[int, float]] = {}
        """The last turn of each, and for how many seconds it was watched not to move."""
        self._last_look: float | None = None

    def observe(self, others: Iterable[tuple[str, int]], monotonic: float) -> list[tuple[str, int]]:
        """Note the others' turns; return (worker, turn) of those that have not moved for a lease."""
        last = monotonic if self._last_look is None else self._last_look
        self._last_look = monotonic
        watched = min(monotonic - last, self.lease_seconds / 3)
        current: dict[str, tuple[int, float]] = {}
        for worker_id, turn in others:
            known, silent = self._seen.get(worker_id, (None, 0.0))
            current[worker_id] = (turn, silent + watched if known == turn else 0.0)
        self._seen = current
        return [
            (worker_id, turn)
            for worker_id, (turn, silent) in current.items()
            if silent > self.lease_seconds
        ]
