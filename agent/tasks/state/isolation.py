"""Isolation of a step whose last attempt took its worker down, so that it takes no other with it.

While such a step is due the worker claims nothing else until it is empty. Then the step runs with
nothing beside it. Both are bounded in time: neither a long step that still runs, nor the isolated
step itself, may stop everything else for good.
"""

from typing import Final

NOT_ISOLATED: Final = 0
MUST_BE_ISOLATED: Final = 1
"""Its last attempt was lost in a crash."""
IS_ISOLATED: Final = 2
"""It was claimed with nothing beside it; only a running step has this."""
WAITS_FOR_STORE: Final = 3
"""No code of it runs: it waits for a store, before its attempt or after it. Only a running step has this."""


class Isolation:
    """A worker's record of a step that runs, or waits to run, isolated."""

    def __init__(self, isolation_seconds: float) -> None:
        self._isolation_seconds = isolation_seconds
        self._draining_since: float | None = None
        self._isolated_since: float | None = None

    def limit(self, slots: int, running: int, now: float) -> tuple[int, bool]:
        """Return how many of the free slots may be used, and whether a step may be isolated.

        `running` leaves out the attempts that this transaction settles: without any, the isolated
        step has ended, and the next one may be isolated.
        """
        may_isolate = True
        if self._draining_since is not None:
            may_isolate = now - self._draining_since < self._isolation_seconds
        if self._isolated_since is not None and running > 0:
            if now - self._isolated_since < self._isolation_seconds:
                slots = 0
            may_isolate = False
        return slots, may_isolate

    def note_commit(self, now: float, *, is_isolated: bool, is_draining: bool) -> None:
        """Record the claims of a transaction."""
        if is_isolated:
            self._isolated_since, self._draining_since = now, None
        elif not is_draining:
            self._draining_since = None
        elif self._draining_since is None:
            self._draining_since = now

    def note_end(self) -> None:
        """Record that the isolated step has ended."""
        self._isolated_since = None
