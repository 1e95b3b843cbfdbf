"""Exponential backoff: how long to wait after a number of failures in a row.

This is the only implementation. `delay_seconds` is for callers that count their failures themselves,
often in the database; `Backoff` counts them for a loop. A step's own delays (`retry:` in the workflow, with
jitter) are `agent.workflows.graph.RetryPolicy.delay_after`, which uses it.
"""


def delay_seconds(
    failures: int, *, first_seconds: float, longest_seconds: float, factor: float = 2.0
) -> float:
    """Return the delay after this many failures in a row (1 or more), without jitter."""
    try:
        delay = first_seconds * factor ** (failures - 1)
    except OverflowError:
        delay = longest_seconds
    return min(delay, longest_seconds)


class Backoff:
    """Delays that double with each failure, until `reset`."""

    __slots__ = ("_first_seconds", "_longest_seconds", "failures")

    def __init__(self, first_seconds: float, longest_seconds: float) -> None:
        self._first_seconds = first_seconds
        self._longest_seconds = longest_seconds
        self.failures = 0
        """Failures since the last `reset`."""

    def next_seconds(self) -> float:
        """Count a failure and return how long to wait after it."""
        self.failures += 1
        return delay_seconds(
            self.failures,
            first_seconds=self._first_seconds,
            longest_seconds=self._longest_seconds,
        )

    def reset(self) -> None:
        """Start again with the first delay: the last try succeeded."""
        self.failures = 0
