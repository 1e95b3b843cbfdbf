"""Keeping a step apart whose last attempt took its worker down: poison must not take neighbours.

While such a step is due nothing else is claimed until the worker is empty; then it runs alone. Both
are bounded in time: a long step beside it, or the step itself, must not stop everything for good.
"""


class Seclusion:
    """What one worker knows of a step that runs, or waits to run, alone."""

    def __init__(self, solo_seconds: float) -> None:
        self._solo_seconds = solo_seconds
        self._draining_since: float | None = None
        self._alone_since: float | None = None

    def room(self, slots: int, running: int, now: float) -> tuple[int, bool]:
        """Return how many of the free slots may be used, and whether a step may be kept apart."""
        may_run_alone = True
        if self._draining_since is not None:
            may_run_alone = now - self._draining_since < self._solo_seconds
        if self._alone_since is not None:
            if now - self._alone_since < self._solo_seconds and running > 0:
                slots = 0
            may_run_alone = False
        return slots, may_run_alone

    def note_turn(self, now: float, *, is_alone: bool, is_draining: bool) -> None:
        """Take note of what a turn claimed."""
        if is_alone:
            self._alone_since, self._draining_since = now, None
        elif not is_draining:
            self._draining_since = None
        elif self._draining_since is None:
            self._draining_since = now

    def note_end(self) -> None:
        """Take note that the step that ran alone is settled."""
        self._alone_since = None
