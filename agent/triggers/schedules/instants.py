"""The instants of a schedule: the next ones, and those in a span of time.

All instants are whole microseconds since 1970. The keys of a schedule mean this:

- `cron`: five fields in the schedule's zone; `agent.triggers.schedules.cron` has the rules for changing clocks.
- `every`: equal steps of real time, counted from `start` if that is given, else from the anchor, which
  is recorded once when the schedule is first seen.
- `at`: one time or several. Without an offset it is local time of the schedule's zone: a time that
  the clock repeats in autumn is the first of the two, one that it skips in spring is the moment right
  after the gap. A date alone is its first moment.
- `timezone`: the machine's own by default.
- `start`, `end`: both inclusive. A date alone means the whole day: `start` is its first moment and
  `end` its last.
- `jitter`: delays each instant by up to this much. The delay follows from the trigger and the instant,
  so that it is the same whenever and wherever it is computed.
"""

import functools
import hashlib
from bisect import bisect_right
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any, Final, Protocol
from zoneinfo import ZoneInfo

from agent.core.clock import SECOND
from agent.core.local_zone import machine_zone
from agent.triggers.local_time import DAY_US, parse_time
from agent.triggers.schedules.cron import Cron

Json = Any

_EARLIEST_US: Final = -70 * 365 * DAY_US
_LATEST_US: Final = 7900 * 365 * DAY_US
"""The years from 1900 to about 9860, with room on both sides for the arithmetic of calendars."""


@dataclass(frozen=True, slots=True)
class Gap:
    """The instants of a schedule in a span of time that is later than `after` and up to `until`."""

    latest: list[int]
    """The newest of them in ascending order, as many as were asked for."""
    count: int
    is_exact: bool
    """False: there are at least `count`; a very long gap of a cron expression is not counted out."""
    first: int | None
    last: int | None


class _Instants(Protocol):
    """One way to write a schedule, without its bounds."""

    def next_after(self, after_us: int) -> int | None: ...

    def count(self, after_us: int, until_us: int) -> tuple[int, bool]: ...

    def latest(self, after_us: int, until_us: int, most: int) -> list[int]: ...


@dataclass(frozen=True, slots=True)
class _Every:
    """Equal steps from an anchor, in both directions: a clock that ran ahead may have set it."""

    anchor_us: int
    step_us: int

    def next_after(self, after_us: int) -> int | None:
        return self.anchor_us + (self._number(after_us) + 1) * self.step_us

    def count(self, after_us: int, until_us: int) -> tuple[int, bool]:
        return self._number(until_us) - self._number(after_us), True

    def latest(self, after_us: int, until_us: int, most: int) -> list[int]:
        last = self._number(until_us)
        first = max(self._number(after_us) + 1, last - most + 1)
        return [self.anchor_us + number * self.step_us for number in range(first, last + 1)]

    def _number(self, instant_us: int) -> int:
        return (instant_us - self.anchor_us) // self.step_us


@dataclass(frozen=True, slots=True)
class _At:
    """Single instants, in ascending order."""

    instants: list[int]

    def next_after(self, after_us: int) -> int | None:
        position = bisect_right(self.instants, after_us)
        return self.instants[position] if position < len(self.instants) else None

    def count(self, after_us: int, until_us: int) -> tuple[int, bool]:
        return len(self.latest(after_us, until_us, len(self.instants))), True

    def latest(self, after_us: int, until_us: int, most: int) -> list[int]:
        first, last = (bisect_right(self.instants, instant) for instant in (after_us, until_us))
        return self.instants[max(first, last - most) : last]


@functools.lru_cache(maxsize=4096)
def _cron_of(expression: str, zone: tzinfo) -> Cron:
    """Return a cron expression, read once: that takes longer than to find its next instant."""
    return Cron(expression, zone)


class Timing:
    """When one schedule is due: a pure function of its keys, its anchor and its id."""

    __slots__ = ("_end_us", "_instants", "_start_us", "jitter_us", "trigger_id", "zone")

    def __init__(self, spec: dict[str, Json], anchor_us: int, trigger_id: str = "") -> None:
        self.trigger_id = trigger_id
        self.zone: tzinfo = ZoneInfo(spec["timezone"]) if spec.get("timezone") else machine_zone()
        self._start_us = _bound(spec.get("start"), self.zone, is_end=False)
        self._end_us = _bound(spec.get("end"), self.zone, is_end=True)
        self.jitter_us = round((spec.get("jitter_seconds") or 0) * SECOND)
        self._instants: _Instants
        if spec.get("cron"):
            self._instants = _cron_of(spec["cron"], self.zone)
        elif spec.get("every_seconds"):
            from_us = parse_time(spec["start"], self.zone) if spec.get("start") else anchor_us
            self._instants = _Every(from_us, max(1, round(spec["every_seconds"] * SECOND)))
        else:
            self._instants = _At(sorted({parse_time(text, self.zone) for text in spec["at"]}))

    @classmethod
    def of(cls, spec: dict[str, Json], anchor_us: int, trigger_id: str = "") -> "Timing":
        """Return the timing of a compiled `schedule` block."""
        return cls(spec, anchor_us, trigger_id)

    def next_after(self, after_us: int) -> int | None:
        """Return the first nominal instant that is later; None: there is none any more."""
        if after_us >= self._end_us:
            return None
        instant = self._instants.next_after(max(after_us, self._start_us - 1))
        return None if instant is None or instant > self._end_us else instant

    def is_within_bounds(self, instant_us: int) -> bool:
        """Tell whether an instant lies neither before `start` nor after `end`."""
        return self._start_us <= instant_us <= self._end_us

    def due(self, nominal_us: int) -> int:
        """Return when the run of a nominal instant starts: up to `jitter` later, always the same."""
        if not self.jitter_us:
            return nominal_us
        digest = hashlib.blake2b(f"{self.trigger_id}\0{nominal_us}".encode(), digest_size=8)
        return nominal_us + int.from_bytes(digest.digest()) % (self.jitter_us + 1)

    def between(self, after_us: int, until_us: int, most: int) -> Gap:
        """Return the newest instants in (after, until], `most` at most, and how many there are."""
        after_us = max(after_us, self._start_us - 1)
        until_us = min(until_us, self._end_us)
        first = self.next_after(after_us)
        if first is None or first > until_us:
            return Gap([], 0, is_exact=True, first=None, last=None)
        latest = self._instants.latest(after_us, until_us, max(most, 1))
        count, is_exact = self._instants.count(after_us, until_us)
        return Gap(
            latest[-most:] if most else [],
            max(count, len(latest)),
            is_exact=is_exact,
            first=first,
            last=latest[-1],
        )


def _bound(text: str | None, zone: tzinfo, *, is_end: bool) -> int:
    if text is None:
        return _LATEST_US if is_end else _EARLIEST_US
    return min(max(parse_time(text, zone, is_end=is_end), _EARLIEST_US), _LATEST_US)
