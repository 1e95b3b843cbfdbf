"""Debian's cron, minute by minute: a slow model that the instants of schedules are compared with.

It is written from the manual pages crontab(5) and cron(8) and shares no code with the agent. It wakes
every minute of real time and compares the clock on the wall with the minute that it has reached:

- one minute later: it runs what matches;
- up to three hours later (the clock was set forward): it runs wildcard jobs for the minute on the wall,
  and jobs with a fixed time for every minute that was skipped;
- up to three hours earlier (the clock was set back): it runs wildcard jobs alone until it has caught up.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_WEEKDAYS = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]
_MONTHS = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]

ZONES = [
    "Europe/Berlin",
    "America/New_York",
    "America/Santiago",  # south of the equator, and its clocks change at midnight
    "Australia/Lord_Howe",  # by half an hour
    "Africa/Casablanca",  # back for Ramadan
    "Asia/Kolkata",  # never
]
SPARSE = [
    "30 2 * * *",
    "0 0 * * *",
    "30 23 * * *",
    "0,30 0-3 * * *",
    "*/15 2 * * *",
    "*/15 0,3 * * *",
    "30 * * * *",
    "15 */2 * * *",
    "20 1-23/2 * * *",
    "0 2 1-7 * 0",
    "0 2 */2 * SUN",
    "30 1,2 8-14,25-31 * */7",
    "45 1,2 * MAR,APR,OCT,NOV SUN,7",
    "0 12 * * MON-FRI",
    "15-15/20 8-8/3,20 5-5/2 MAR-MAR/4,10 *",
    "30 2 * * SUN-0/2,3-3/1",
    "0 0 29 2 *",
    "59 23 30,31 * *",
]
DENSE = ["* * * * *", "*/7 * * * *", "*/20 * * * *", "1-59/2 2 * * *", "*/10 1-3 * * 0"]


@dataclass(frozen=True)
class Job:
    """One line of a crontab, without its command."""

    minutes: frozenset[int]
    """Of the day: every minute at which it could run."""
    months: frozenset[int]
    days: frozenset[int]
    weekdays: frozenset[int]
    needs_both_days: bool
    is_wildcard: bool

    def matches_day(self, day: date) -> bool:
        in_days, in_weekdays = day.day in self.days, (day.isoweekday() % 7) in self.weekdays
        is_match = in_days and in_weekdays if self.needs_both_days else in_days or in_weekdays
        return is_match and day.month in self.months


def read_job(expression: str) -> Job:
    """Read five fields by the rules of crontab(5)."""
    minute, hour, day, month, weekday = expression.split()
    return Job(
        minutes=frozenset(
            h * 60 + m for h in _values(hour, 0, 23, []) for m in _values(minute, 0, 59, [])
        ),
        months=frozenset(_values(month, 1, 12, ["", *_MONTHS])),
        days=frozenset(_values(day, 1, 31, [])),
        weekdays=frozenset(value % 7 for value in _values(weekday, 0, 7, _WEEKDAYS)),
        needs_both_days=day[0] == "*" or weekday[0] == "*",
        is_wildcard=minute[0] == "*" or hour[0] == "*",
    )


def _values(field: str, low: int, high: int, names: list[str]) -> Iterator[int]:
    def value(text: str) -> int:
        return names.index(text) if text in names else int(text)

    for part in field.split(","):
        span, _, step = part.partition("/")
        first, dash, last = span.partition("-")
        if step and not dash and span != "*":
            raise ValueError(f"a step follows a range or `*`: {part}")
        begin, end = (
            (low, high) if span == "*" else (value(first), value(last) if last else value(first))
        )
        yield from range(begin, end + 1, int(step or 1))


@dataclass(frozen=True)
class Minutes:
    """The minutes of a span of real time, as Debian's cron goes through them in one zone."""

    after_us: int
    until_us: int
    wall: list[tuple[int, date, int]]
    """Every minute: its instant, and the date and minute of the day on the wall."""
    fixed: list[tuple[int, date, int]]
    """What jobs with a fixed time are compared with: skipped minutes too, repeated ones once."""

    @classmethod
    def of(cls, zone: ZoneInfo, begin: datetime, end: datetime) -> "Minutes":
        """Go through all whole minutes in (begin, end]."""
        wall, fixed = [], []
        reached = _minute(begin.astimezone(zone))
        moment, instant = begin, (begin - EPOCH) // timedelta(microseconds=1)
        after_us = instant
        while moment < end:
            moment += timedelta(minutes=1)
            instant += 60_000_000
            here = _minute(moment.astimezone(zone))
            wall.append((instant, *_day_and_minute(here)))
            if here == reached + 1 or not -180 <= here - reached <= 180:
                fixed.append(wall[-1])
                reached = here
            elif here > reached:
                fixed += [
                    (instant, *_day_and_minute(skipped)) for skipped in range(reached + 1, here + 1)
                ]
                reached = here
        return cls(after_us, instant, wall, fixed)

    def instants(self, job: Job) -> list[int]:
        """Return when a job runs, each instant once."""
        minutes = self.wall if job.is_wildcard else self.fixed
        days = {day for _, day, _ in minutes[::30]} | {day for _, day, _ in minutes[-1:]}
        matching = {day for day in days if job.matches_day(day)}
        of_day = job.minutes
        return list(
            dict.fromkeys(
                instant for instant, day, minute in minutes if minute in of_day and day in matching
            )
        )


def _minute(local: datetime) -> int:
    return local.toordinal() * 1440 + local.hour * 60 + local.minute


def _day_and_minute(minute: int) -> tuple[date, int]:
    return date.fromordinal(minute // 1440), minute % 1440


def days_before_changes(zone: ZoneInfo, first_year: int, years: int) -> list[datetime]:
    """Return two days before each change of a zone's clock; without any, two days of a year."""
    days = []
    day = datetime(first_year, 1, 1, tzinfo=UTC)
    while day.year < first_year + years:
        if (
            day.astimezone(zone).utcoffset()
            != (day + timedelta(days=1)).astimezone(zone).utcoffset()
        ):
            days.append(day - timedelta(days=2))
        day += timedelta(days=1)
    return days or [
        datetime(year, month, 25, tzinfo=UTC)
        for year in range(first_year, first_year + years)
        for month in (3, 10)
    ]
