"""Converts between instants and the local time of a zone, where clocks are set forward and back.

A local time in the hour that a zone skips in spring (the gap) never comes; one in the hour that it
repeats in autumn (the fold) comes twice. Offsets decide which: `fold=0` asks for the offset before
the change and `fold=1` for the one after it (PEP 495), so a larger second offset is a gap.
"""

import functools
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import Any, Final
from zoneinfo import ZoneInfo

from agent.core.clock import SECOND
from agent.core.local_zone import machine_zone

_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001  (local times have no zone here)
_EPOCH_UTC: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
DAY_US: Final = 86_400 * SECOND


def to_local(instant_us: int, zone: tzinfo) -> datetime:
    """Return the local time at an instant, with its zone; `OverflowError` beyond the year 9999."""
    return (_EPOCH_UTC + timedelta(microseconds=instant_us)).astimezone(zone)


def offset_at(instant_us: int, zone: tzinfo) -> int:
    """Return the microseconds that local time is ahead of UTC at an instant."""
    offset = to_local(instant_us, zone).utcoffset()
    assert offset is not None
    return offset // _MICROSECOND


def offsets_of(local: datetime, zone: tzinfo) -> tuple[int, int]:
    """Return the offsets of a local time (without a zone) before and after a change of the clock.

    They are equal, except in a gap (the second is larger) and in a fold (the first is larger).
    """
    before = zone.utcoffset(local.replace(fold=0) if local.fold else local)
    after = zone.utcoffset(local.replace(fold=1))
    assert before is not None and after is not None
    if before == after:
        offset = before // _MICROSECOND
        return offset, offset
    return before // _MICROSECOND, after // _MICROSECOND


@functools.lru_cache(maxsize=16_384)
def steady_offset(day: int, zone: tzinfo) -> int | None:
    """Return the offset of a day (its ordinal) if clocks change neither on it nor a day from it.

    On such a day every local time comes exactly once. The days beside it count because a change near
    midnight moves local times to another date.
    """
    midnight = datetime.combine(date.fromordinal(day), time())
    offsets = {
        offset
        for days in (-1, 0, 1, 2)
        for offset in offsets_of(midnight + timedelta(days=days), zone)
    }
    return offsets.pop() if len(offsets) == 1 else None


def local_us(local: datetime) -> int:
    """Return a local time (without a zone) as if it were UTC; minus its offset it is an instant."""
    return (local - _EPOCH) // _MICROSECOND


def first_instant(local: datetime, zone: tzinfo) -> int:
    """Return when a local time (without a zone) comes: in a fold first, for a gap right after it."""
    before, after = offsets_of(local, zone)
    if before < after:
        return gap_end(local, zone)
    return local_us(local) - before


def gap_end(local: datetime, zone: tzinfo) -> int:
    """Return the instant at which the gap that this local time falls into is over."""
    before, after = offsets_of(local, zone)
    assert before < after
    too_early, late_enough = local_us(local) - after, local_us(local) - before
    while late_enough - too_early > 1:
        middle = (too_early + late_enough) // 2
        if offset_at(middle, zone) == before:
            too_early = middle
        else:
            late_enough = middle
    return late_enough


def next_offset_change(after_us: int, until_us: int, zone: tzinfo) -> int | None:
    """Return the first instant in a span with another offset than the instant before it."""
    offset = offset_at(after_us, zone)
    early = after_us
    # Two changes of a zone are weeks apart: a step of one day cannot miss a pair of them.
    while early < until_us:
        late = min(early + DAY_US, until_us)
        if offset_at(late, zone) != offset:
            while late - early > 1:
                middle = (early + late) // 2
                if offset_at(middle, zone) == offset:
                    early = middle
                else:
                    late = middle
            return late
        early = late
    return None


def parse_time(text: str, zone: tzinfo, *, is_end: bool = False) -> int:
    """Return the instant of an ISO time; without an offset it is local time.

    A date alone stands for its first moment and, as an end, for its last. A local time that comes
    twice in autumn is the first of them; one that is skipped in spring is the moment right after.
    """
    day = _date_of(text)
    if day is not None:
        if not is_end:
            return first_instant(datetime.combine(day, time()), zone)
        if day == date.max:
            return first_instant(datetime.combine(day, time.max), zone)
        return first_instant(datetime.combine(day + timedelta(days=1), time()), zone) - 1
    moment = datetime.fromisoformat(text)
    offset = moment.utcoffset()
    if offset is None:
        return first_instant(moment, zone)
    return local_us(moment.replace(tzinfo=None)) - offset // _MICROSECOND


def _date_of(text: str) -> date | None:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


def zone_of_spec(spec: dict[str, Any]) -> tzinfo:
    """Return the time zone in which the times of a trigger are written and shown."""
    name = spec.get("timezone")
    try:
        return ZoneInfo(name) if name else machine_zone()
    except Exception:
        # A broken definition: its times are still shown.
        return machine_zone()


def shown_time(instant_us: int, zone: tzinfo) -> str:
    """Return an instant for people, in a zone."""
    local = to_local(instant_us, zone)
    spec = "%Y-%m-%d %H:%M" if local.second == 0 else "%Y-%m-%d %H:%M:%S"
    return f"{local.strftime(spec)} {local.tzname() or zone_name(zone)}"


def zone_name(zone: tzinfo) -> str:
    """Return the name of a zone for people."""
    return getattr(zone, "key", None) or zone.tzname(None) or "local time"
