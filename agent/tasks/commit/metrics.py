"""Metrics of a worker's commits and of its event loop, since its process began."""

from typing import Final

SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
OUTCOMES: Final = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256)


class Histogram:
    """Counts of values at or below each bound; one thread writes it, any thread reads it."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        """Count a value."""
        bucket = 0
        for bound in self.bounds:
            if value <= bound:
                break
            bucket += 1
        self.counts[bucket] += 1
        self.total += value


class Blocks:
    """How often, and for how long in total, the event loop was blocked; one thread writes it."""

    def __init__(self) -> None:
        self.count = 0
        self.seconds = 0.0

    def add(self, seconds: float) -> None:
        """Count a block that is over."""
        self.count += 1
        self.seconds += seconds


class CommitMetrics:
    """How long the commits of one worker took, and how much each carried."""

    def __init__(self) -> None:
        self.seconds = Histogram(SECONDS)
        self.carried = Histogram(OUTCOMES)

    def add(self, seconds: float, carried: int) -> None:
        """Count a commit."""
        self.seconds.add(seconds)
        self.carried.add(carried)
