"""A cron expression in a time zone, by the rules of Debian's cron.

`cronsim` reads the expression and decides which days match: where both the day of the month and the
weekday are restricted, one of them suffices. The arithmetic of local time is here, because cronsim's
own returns instants of the past in an autumn fold, and omits some where a zone shifts by half an hour.

When clocks change:

- An expression whose minute or hour begins with `*` (`*/5 * * * *`, `30 * * * *`) follows the clock on
  the wall: it matches in both passes of a repeated hour, and never in a skipped one.
- Any other (`30 2 * * *`) runs once a day: in the first pass of a repeated hour, and right after a
  skipped one, once for all of its times in the gap.
"""

import re
from bisect import bisect_right
from datetime import date, datetime, time, timedelta, tzinfo
from typing import Final

from cronsim import CronSim
from cronsim.cronsim import SYMBOLIC_DAYS, SYMBOLIC_MONTHS

from agent.core.clock import SECOND
from agent.triggers.local_time import (
    DAY_US,
    gap_end,
    local_us,
    offsets_of,
    steady_offset,
    to_local,
)

_MOST_YEARS: Final = 50
"""A search that finds nothing for this long ends: the expression never matches again."""
_MOST_DAYS: Final = 3660
"""Days that are counted, about ten years: of a longer gap only a lower bound is known."""
_ONE_DAY: Final = timedelta(days=1)


_RANGE_OF_ONE: Final = re.compile(r"(?<![^\s,])(\w+)-(\w+)/\d+(?![^\s,])")


def _without_step(match: re.Match[str]) -> str:
    """Return the value of a range that has one alone: cronsim would go on from it to the last value."""
    first, last = (_value(match[number]) for number in (1, 2))
    return match[1] if first == last else match[0]


def _value(text: str) -> int | str:
    for names, lowest in ((SYMBOLIC_DAYS, 0), (SYMBOLIC_MONTHS, 1)):
        if text in names:
            return names.index(text) + lowest
    return int(text) if text.isdigit() else text


class Cron:
    """The instants of a cron expression of five fields in one time zone."""

    def __init__(self, expression: str, zone: tzinfo) -> None:
        self._zone = zone
        plain = _RANGE_OF_ONE.sub(_without_step, expression.upper())
        fields = CronSim(plain, datetime(2000, 1, 1))  # noqa: DTZ001  (only reads the fields)
        self._minutes = sorted(fields.minutes)
        self._hours = sorted(fields.hours)
        self._months = frozenset(fields.months)
        self._matches_day = fields.match_day
        minute, hour = expression.split()[:2]
        self.follows_wall_clock = minute.startswith("*") or hour.startswith("*")
        """Whether it matches in both passes of a repeated hour, and never in a skipped one."""

    def next_after(self, after_us: int) -> int | None:
        """Return the first instant that is later, if there is one within fifty years."""
        # Matches are whole minutes: what follows the second that has begun follows the instant.
        here = datetime.fromtimestamp(after_us // SECOND, self._zone)
        local = self.next_local(here)
        if local is None:
            return None
        if steady_offset(here.toordinal(), self._zone) is not None:
            offset = steady_offset(local.toordinal(), self._zone)
            if offset is not None:
                return local_us(local) - offset
        return self._next_at_change(after_us, here.replace(tzinfo=None))

    def _next_at_change(self, after_us: int, here: datetime) -> int | None:
        """Return the first instant that is later, where the clock may change."""
        # In the first pass of a fold, what it repeats begins at most its length earlier.
        before, after = offsets_of(here, self._zone)
        repeated = before - after if self.follows_wall_clock and not here.fold else 0
        local: datetime | None = here - timedelta(microseconds=max(repeated, 0))
        second_pass: int | None = None
        while local is not None and (local := self.next_local(local)) is not None:
            instants = self._instants_at(local)
            if second_pass is None and len(instants) == 2 and instants[1] > after_us:
                second_pass = instants[1]
            # First passes come in the order of local times, and so do second ones: the earliest of
            # both is known as soon as a first pass is later.
            if instants and instants[0] > after_us:
                return instants[0] if second_pass is None else min(instants[0], second_pass)
        return second_pass

    def _instants_at(self, local: datetime) -> list[int]:
        """Return when a matching local time runs: never, once or twice, in ascending order."""
        before, after = offsets_of(local, self._zone)
        instant = local_us(local) - before
        if before == after:
            return [instant]
        if not self.follows_wall_clock:
            return [gap_end(local, self._zone) if before < after else instant]
        return [] if before < after else [instant, local_us(local) - after]

    def next_local(self, after: datetime) -> datetime | None:
        """Return the first local time that matches and is later."""
        day = after.date()
        if self._matches(day):
            minutes = self._minutes
            position = bisect_right(self._hours, after.hour)
            if position and self._hours[position - 1] == after.hour:
                in_hour = bisect_right(minutes, after.minute)
                if in_hour < len(minutes):
                    return datetime.combine(day, time(after.hour, minutes[in_hour]))
            if position < len(self._hours):
                return datetime.combine(day, time(self._hours[position], minutes[0]))
        next_day = self._next_day(day)
        if next_day is None:
            return None
        return datetime.combine(next_day, time(self._hours[0], self._minutes[0]))

    def _matches(self, day: date) -> bool:
        return day.month in self._months and bool(self._matches_day(day))

    def _next_day(self, day: date) -> date | None:
        last_year = day.year + _MOST_YEARS
        while day.year <= last_year:
            day += _ONE_DAY
            if day.month not in self._months:
                day = (day.replace(day=28) + timedelta(days=4)).replace(day=1) - _ONE_DAY
            elif self._matches_day(day):
                return day
        return None

    def _previous_day(self, day: date) -> date | None:
        first_year = day.year - _MOST_YEARS
        while day.year >= first_year:
            day -= _ONE_DAY
            if day.month not in self._months:
                day = day.replace(day=1)
            elif self._matches_day(day):
                return day
        return None

    def count(self, after_us: int, until_us: int) -> tuple[int, bool]:
        """Return how many instants lie in (after, until], and whether that is exact.

        Days on which the clock does not change are counted by arithmetic, the others one by one.
        """
        bound_us = min(until_us, after_us + _MOST_DAYS * DAY_US)
        total = 0
        at_changes: set[int] = set()
        last_day = to_local(bound_us, self._zone).date() + _ONE_DAY
        # A change at midnight can move local times to the next day, so begin a day early.
        day = self._next_day(to_local(after_us, self._zone).date() - 2 * _ONE_DAY)
        while day is not None and day <= last_day:
            offset = steady_offset(day.toordinal(), self._zone)
            if offset is None:
                at_changes.update(self._instants_of(day))
            else:
                start_us = local_us(datetime.combine(day, time())) - offset
                total += self._count_up_to(bound_us - start_us)
                total -= self._count_up_to(after_us - start_us)
            day = self._next_day(day)
        total += sum(after_us < instant <= bound_us for instant in at_changes)
        return total, bound_us == until_us

    def _count_up_to(self, passed_us: int) -> int:
        """Count the matches of a steady day up to a time since its start, before or after its end."""
        hour, minute = divmod(passed_us // (60 * SECOND), 60)
        position = bisect_right(self._hours, hour)
        if position and self._hours[position - 1] == hour:
            return (position - 1) * len(self._minutes) + bisect_right(self._minutes, minute)
        return position * len(self._minutes)

    def latest(self, after_us: int, until_us: int, most: int) -> list[int]:
        """Return the newest instants in (after, until] in ascending order, `most` at most."""
        first_day = to_local(after_us, self._zone).date() - _ONE_DAY
        day = self._previous_day(to_local(until_us, self._zone).date() + 2 * _ONE_DAY)
        values: set[int] = set()
        while day is not None and day >= first_day:
            values.update(i for i in self._instants_of(day) if after_us < i <= until_us)
            # Days before a steady one have only earlier instants.
            if len(values) >= most and steady_offset(day.toordinal(), self._zone) is not None:
                break
            day = self._previous_day(day)
        return sorted(values)[-most:]

    def _instants_of(self, day: date) -> list[int]:
        """Return the instants of all local times of a matching day; they may lie beside it."""
        midnight = datetime.combine(day, time())
        minutes = [hour * 60 + minute for hour in self._hours for minute in self._minutes]
        offset = steady_offset(day.toordinal(), self._zone)
        if offset is not None:
            start_us = local_us(midnight) - offset
            return [start_us + minute * 60 * SECOND for minute in minutes]
        return [
            instant
            for minute in minutes
            for instant in self._instants_at(midnight + timedelta(minutes=minute))
        ]
