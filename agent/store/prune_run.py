"""A prune that a person asks for: `agent db prune` and `POST /prune` run the same code.

The command prunes until everything old is gone. A request has a bounded time, and pauses after each
transaction, so that the tasks of the same process go on: it removes the rest when it is sent again.
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, TypeVar

from agent.core.clock import SECOND, Clock
from agent.store import free_space, pruning
from agent.store.db.database import Database
from agent.store.free_space import DiskUsage
from agent.store.pruning import PRUNED, Retained

Step = TypeVar("Step")

_LONGEST_PAUSE_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class PruneReport:
    """What a prune has removed, or would remove."""

    counts: dict[str, int]
    """Rows by kind."""
    kept: Retained | None
    """None where the time was over before everything old was removed."""
    size: DiskUsage | None = None
    """The disk space of the database now; None on PostgreSQL, and for a preview."""
    bytes_freed: int | None = None

    @property
    def is_complete(self) -> bool:
        """Whether everything old was removed."""
        return self.kept is not None


def instant_before(database: Database, days: float) -> int:
    """Return the instant that many days ago: what ended before it is old."""
    return database.clock.now() - int(days * 86_400 * SECOND)


def preview(database: Database, before_us: int) -> PruneReport:
    """Return what `run` would remove now, and change nothing."""
    with database.connect("reader") as connection:
        return PruneReport(*pruning.preview(connection, before_us))


def run(
    database: Database,
    before_us: int,
    *,
    most_seconds: float | None = None,
    rewrite: Callable[[], None] | None = None,
) -> PruneReport:
    """Remove what ended before an instant, and return the disk space; with a bound, pause in between.

    `rewrite` is called before the disk space is returned.
    """
    size_before = free_space.measure(database)
    pace = _Pace(database.clock, most_seconds)
    counts = dict.fromkeys(PRUNED, 0)
    kept = None
    with database.connect("writer") as connection:
        for kind, count in pace.steps(pruning.prune_in_steps(connection, before_us)):
            counts[kind] += count
        if not pace.is_over:
            kept = pruning.retained(connection, before_us)
    if rewrite is not None:
        rewrite()
    with contextlib.closing(free_space.shrink_in_steps(database)) as steps:
        for _ in pace.steps(steps):
            pass
    size = free_space.measure(database)
    freed = None
    if size is not None and size_before is not None:
        freed = max(0, size_before.file_bytes - size.file_bytes)
    return PruneReport(counts, kept, size, freed)


class _Pace:
    """Lets steps follow each other; with a bound, with a pause after each, until the time is over."""

    def __init__(self, clock: Clock, most_seconds: float | None) -> None:
        self._clock = clock
        self._has_bound = most_seconds is not None
        self._until = clock.monotonic() + (most_seconds or 0.0)
        self.is_over = False

    def steps(self, steps: Iterator[Step]) -> Iterator[Step]:
        began = self._clock.monotonic()
        for step in steps:
            yield step
            if self._has_bound:
                now = self._clock.monotonic()
                if now >= self._until:
                    self.is_over = True
                    return
                # As long as the transaction took: others write meanwhile.
                self._clock.sleep(min(now - began, _LONGEST_PAUSE_SECONDS))
                began = self._clock.monotonic()
