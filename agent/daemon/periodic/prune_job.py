"""Removes old tasks while the daemon runs, as `agent db prune` does, if `[prune]` turns it on.

Large values in the database that nothing refers to are removed by default.

The removal must not slow tasks down: its transactions are short, it pauses after each for several times
as long as that took, and one run removes a bounded number of rows. The rest is removed a
little later.

Age is counted by the clock, and a clock that was set a year ahead by mistake makes everything old. So
after a large jump the job waits: a time server corrects such a clock soon.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

import structlog

from agent.config.operation import PruneSettings
from agent.core.clock import SECOND
from agent.daemon.periodic.clock_jumps import ClockJumps
from agent.store import free_space, pruning
from agent.store.artifacts import artifact_rows
from agent.store.db.database import Connection, Database
from agent.store.engine import conversation_rows

log = structlog.get_logger(__name__)

Step = TypeVar("Step")

MOST_PER_RUN: Final = 20_000
"""Rows removed in one run, about: tasks, and rows that belong to no task."""
FIRST_PAUSE_SECONDS: Final = 300.0
"""Between the start of the daemon, or a large jump of the clock, and the next run."""
NEXT_PAUSE_SECONDS: Final = 30.0
"""Between two runs, while there is more to remove."""
_PAUSE_SHARE: Final = 4.0
"""How much longer than a transaction the pause after it is: others write meanwhile."""
_PAUSE_SECONDS: Final = (0.02, 1.0)
"""Its bounds."""
_LARGE_JUMP_SECONDS: Final = 3600.0


class PruneJob:
    """Removes old tasks as configured; each run sets the time of the next."""

    def __init__(
        self, settings: PruneSettings, database: Database, set_time: Callable[[int], None]
    ) -> None:
        self._age_us = int(settings.older_than_days * 86_400 * SECOND)
        self._idle_us = int(settings.conversations_idle_days * 86_400 * SECOND)
        self._removes_artifacts = settings.unused_artifacts
        self._interval_us = int(settings.every_hours * 3600 * SECOND)
        self._database = database
        self._set_time = set_time
        self._is_stopping = threading.Event()
        self._jumps = ClockJumps(database.clock)

    def start(self) -> None:
        """Set the time of the first run."""
        pause_us = min(int(FIRST_PAUSE_SECONDS * SECOND), self._interval_us)
        self._set_time(self._database.clock.now() + pause_us)

    def handle_jump(self, seconds: float) -> None:
        """Set the time again after a jump of the clock; by a clock set back it would be far ahead."""
        if seconds < 0:
            self.start()

    def stop(self) -> None:
        """End a run in progress after its current transaction."""
        self._is_stopping.set()

    def run(self) -> None:
        """Remove a bounded number of old rows, in a thread; a failed run is tried again in time."""
        jump = self._jumps.measure()
        self._jumps.accept(jump)
        if abs(jump.clock_seconds) > _LARGE_JUMP_SECONDS:
            log.info("prune.postponed", clock_jumped_seconds=round(jump.clock_seconds))
            self.start()
            return
        pause_us = self._interval_us
        try:
            if not self._prune():
                pause_us = min(int(NEXT_PAUSE_SECONDS * SECOND), self._interval_us)
        finally:
            self._set_time(self._database.clock.now() + pause_us)

    def _prune(self) -> bool:
        """Return whether everything old was removed."""
        counts = dict.fromkeys((*pruning.PRUNED, "conversations"), 0)
        with self._database.connect("writer") as connection:
            for kind, count in self._paced(self._steps(connection)):
                counts[kind] += count
                if sum(counts.values()) >= MOST_PER_RUN:
                    break
        is_complete = not self._is_stopping.is_set() and sum(counts.values()) < MOST_PER_RUN
        if any(counts.values()):
            log.info("prune.done", **counts, is_complete=is_complete)
            with contextlib.closing(free_space.shrink_in_steps(self._database)) as steps:
                for _ in self._paced(steps):
                    pass
        return is_complete

    def _steps(self, connection: Connection) -> Iterator[tuple[str, int]]:
        """Remove old tasks and firings; yield kind and count after each short transaction."""
        now = self._database.clock.now()
        if self._age_us:
            yield from pruning.prune_in_steps(connection, now - self._age_us)
        elif self._removes_artifacts:
            for count in artifact_rows.prune_in_steps(connection, now, is_inside_only=True):
                yield "artifacts", count
        if self._idle_us:
            for count in conversation_rows.forget_idle_in_steps(connection, now - self._idle_us):
                yield "conversations", count

    def _paced(self, steps: Iterator[Step]) -> Iterator[Step]:
        """Yield steps with a pause after each, until the job is stopped."""
        clock = self._database.clock
        shortest, longest = _PAUSE_SECONDS
        while not self._is_stopping.is_set():
            began = clock.monotonic()
            try:
                step = next(steps)
            except StopIteration:
                return
            pause = _PAUSE_SHARE * (clock.monotonic() - began)
            yield step
            self._is_stopping.wait(min(max(pause, shortest), longest))
