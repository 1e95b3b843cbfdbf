"""Which instants of the past a backfill runs: those that have no row of their own.

A range of missed instants never blocks one of them: its own row overrides the range.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

from agent.core.clock import Clock
from agent.store.db.database import Connection
from agent.store.engine import firing_rows
from agent.triggers.run_builder import instant_key
from agent.triggers.schedules.instants import Timing

MOST: Final = 100
"""Instants of one backfill, unless the caller gives another number."""
MOST_EVER: Final = 10_000
SEARCH_SECONDS: Final = 5.0
"""The search for instants ends then: a person waits for it, and repeats it from where it ended."""
_BATCH: Final = 500


@dataclass(frozen=True, slots=True)
class Backfill:
    """The instants that a backfill runs, the oldest first."""

    instants: list[int]
    left_out: int
    """Further instants in the span that have no row of their own."""
    is_exact: bool
    """False: there are at least `left_out` of them."""
    searched_until_us: int | None = None
    """The last instant that was looked at, where the search took too long."""

    @property
    def remark(self) -> str:
        """Say how many instants were left out; empty if none were."""
        if not self.left_out:
            return ""
        number = f"{self.left_out:,}" if self.is_exact else f"at least {self.left_out:,}"
        ones = "one is" if self.left_out == 1 else "ones are"
        return f"; {number} later {ones} left out: repeat the command, or raise the maximum"


def find_backfill(
    connection: Connection, timing: Timing, trigger_id: str, span: tuple[int, int], most: int
) -> Backfill:
    """Return the oldest instants from the first to the last of a span that have no row."""
    first_us, last_us = span
    instants: list[int] = []
    searched_until_us = None
    clock = Clock()
    end = clock.monotonic() + SEARCH_SECONDS
    candidates = _instants(timing, first_us - 1, last_us)
    while len(instants) < most and (batch := list(islice(candidates, _BATCH))):
        keys = {instant_key(instant): instant for instant in batch}
        known = firing_rows.known_keys(connection, trigger_id, list(keys))
        instants += [instant for key, instant in keys.items() if key not in known]
        if clock.monotonic() >= end:
            searched_until_us = batch[-1]
            break
    instants = instants[:most]
    after = instants[-1] if instants else first_us - 1
    rest = timing.between(after, last_us, 0)
    recorded = firing_rows.count_instants(connection, trigger_id, after, last_us)
    return Backfill(instants, max(0, rest.count - recorded), rest.is_exact, searched_until_us)


def _instants(timing: Timing, after_us: int, last_us: int) -> Iterator[int]:
    instant = timing.next_after(after_us)
    while instant is not None and instant <= last_us:
        yield instant
        instant = timing.next_after(instant)
