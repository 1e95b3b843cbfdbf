from datetime import datetime, timedelta
from itertools import combinations
from time import process_time
from zoneinfo import ZoneInfo

import pytest

from agent.core.clock import SECOND
from agent.triggers.local_time import to_local
from agent.triggers.schedules.instants import Timing
from tests.support.debian_cron import DENSE, SPARSE, ZONES, Minutes, days_before_changes, read_job

FIRST_YEAR = 2024
YEARS = 10


def _instants(timing: Timing, minutes: Minutes) -> list[int]:
    found: list[int] = []
    instant = timing.next_after(minutes.after_us)
    while instant is not None and instant <= minutes.until_us:
        found.append(instant)
        instant = timing.next_after(instant)
    return found


@pytest.mark.parametrize("zone", ZONES)
def test_cron_agrees_with_debian_when_clocks_change(zone: str) -> None:
    """Every instant of the days around each change of ten years; dense expressions at some of them."""
    local = ZoneInfo(zone)
    timings = {
        expression: (Timing.of({"cron": expression, "timezone": zone}, 0), read_job(expression))
        for expression in [*SPARSE, *DENSE]
    }
    for number, begin in enumerate(days_before_changes(local, FIRST_YEAR, YEARS)):
        minutes = Minutes.of(local, begin, begin + timedelta(days=5))
        for expression in [*SPARSE, *(DENSE if number < 2 else [])]:
            timing, job = timings[expression]
            expected = minutes.instants(job)
            assert _instants(timing, minutes) == expected, (expression, zone, begin)
            gap = timing.between(minutes.after_us, minutes.until_us, 3)
            assert (gap.count, gap.is_exact) == (len(expected), True), (expression, zone, begin)
            assert gap.latest == expected[-3:], (expression, zone, begin)


@pytest.mark.parametrize(
    ("zone", "change"),
    [
        ("America/Nuuk", "2027-03-28T01:00Z"),  # from 23:00 to 00:00
        ("America/Nuuk", "2027-10-31T01:00Z"),  # from 00:00 to 23:00
        ("America/St_Johns", "2006-04-02T03:31Z"),  # from 00:01 to 01:01
        ("America/St_Johns", "2006-10-29T02:31Z"),  # from 00:01 to 23:01 of the day before
    ],
)
@pytest.mark.parametrize(
    "expression", ["0,30 0,23 * * *", "*/30 0,23 * * *", "30 23 * * SAT", "*/20 * * * SUN"]
)
def test_changes_across_midnight_are_counted_once(zone: str, change: str, expression: str) -> None:
    """Gaps that begin or end anywhere around the change, whose local times cross the date."""
    moment = datetime.fromisoformat(change)
    begin, end = moment - timedelta(days=2), moment + timedelta(days=2)
    assert (
        begin.astimezone(ZoneInfo(zone)).utcoffset() != end.astimezone(ZoneInfo(zone)).utcoffset()
    )
    minutes = Minutes.of(ZoneInfo(zone), begin, end)
    expected = minutes.instants(read_job(expression))
    timing = _cron(expression, zone)
    assert _instants(timing, minutes) == expected
    offsets = sorted([*range(-180, 180, 29), -1, 0, 1, 35])
    around = [int(moment.timestamp() + minute * 60) * SECOND for minute in offsets]
    for after, until in combinations([minutes.after_us, *around, minutes.until_us], 2):
        inside = [instant for instant in expected if after < instant <= until]
        gap = timing.between(after, until, 2)
        assert (gap.count, gap.latest) == (len(inside), inside[-2:]), (after, until)


def _local(timing: Timing, after: str, count: int = 1) -> list[str]:
    """Return the next instants in the zone of the schedule, to the minute."""
    shown: list[str] = []
    instant = int(datetime.fromisoformat(after).timestamp()) * SECOND
    for _ in range(count):
        found = timing.next_after(instant)
        if found is None:
            return [*shown, "never"]
        shown.append(to_local(found, timing.zone).isoformat(timespec="minutes"))
        instant = found
    return shown


def _cron(expression: str, zone: str = "Europe/Berlin", **keys: str) -> Timing:
    return Timing.of({"cron": expression, "timezone": zone, **keys}, 0)


def test_a_fixed_time_in_the_gap_runs_right_after_it() -> None:
    """02:30 does not exist on the last Sunday of March: the job runs at 03:00, once."""
    assert _local(_cron("30 2 * * *"), "2027-03-28T00:00Z", 2) == [
        "2027-03-28T03:00+02:00",
        "2027-03-29T02:30+02:00",
    ]
    assert _local(_cron("0,15,30 2,3 * * *"), "2027-03-28T00:59Z", 3) == [
        "2027-03-28T03:00+02:00",
        "2027-03-28T03:15+02:00",
        "2027-03-28T03:30+02:00",
    ]


def test_a_fixed_time_in_the_fold_runs_once() -> None:
    """Asked during the second pass of the hour, the answer lies ahead and not in the first pass."""
    daily = _cron("45 2 * * *")
    assert _local(daily, "2027-10-31T00:00Z") == ["2027-10-31T02:45+02:00"]
    assert _local(daily, "2027-10-31T01:10Z") == ["2027-11-01T02:45+01:00"]


def test_wildcards_follow_the_clock_on_the_wall() -> None:
    """They run in both passes of a repeated hour, and not at all in a skipped one."""
    assert _local(_cron("*/30 2 * * *"), "2027-10-31T00:00Z", 5) == [
        "2027-10-31T02:30+02:00",
        "2027-10-31T02:00+01:00",
        "2027-10-31T02:30+01:00",
        "2027-11-01T02:00+01:00",
        "2027-11-01T02:30+01:00",
    ]
    assert _local(_cron("*/30 2 * * *"), "2027-03-28T00:00Z") == ["2027-03-29T02:00+02:00"]


def test_a_shift_of_half_an_hour_omits_nothing() -> None:
    """In Lord Howe 02:00 is followed by 02:30 in October, and by 01:30 in April."""
    zone = "Australia/Lord_Howe"
    assert _local(_cron("*/30 3 * * *", zone), "2026-10-03T12:00Z") == ["2026-10-04T03:00+11:00"]
    assert _local(_cron("*/30 1,2 * * *", zone), "2026-04-04T14:00Z", 4) == [
        "2026-04-05T01:30+11:00",
        "2026-04-05T01:30+10:30",
        "2026-04-05T02:00+10:30",
        "2026-04-05T02:30+10:30",
    ]


def test_a_day_that_a_zone_left_out_is_skipped() -> None:
    """Samoa had no 30 December 2011; what was fixed for it runs as the next day begins."""
    hourly = _cron("0 * * * *", "Pacific/Apia")
    assert _local(hourly, "2011-12-30T09:00Z", 2) == [
        "2011-12-31T00:00+14:00",
        "2011-12-31T01:00+14:00",
    ]
    assert _local(_cron("0 8 * * *", "Pacific/Apia"), "2011-12-30T09:00Z", 2) == [
        "2011-12-31T00:00+14:00",
        "2011-12-31T08:00+14:00",
    ]


@pytest.mark.parametrize(
    ("expression", "after", "expected"),
    [
        ("0 8 29 2 *", "2097-01-01T00:00Z", "2104-02-29T08:00+01:00"),
        ("0 8 31 * *", "2027-01-31T12:00Z", "2027-03-31T08:00+02:00"),
        ("0 8 L * *", "2028-02-01T00:00Z", "2028-02-29T08:00+01:00"),
        ("0 8 LW * *", "2027-02-01T00:00Z", "2027-02-26T08:00+01:00"),
        ("0 8 * * 5L", "2027-02-01T00:00Z", "2027-02-26T08:00+01:00"),
        ("0 8 * * MON#1", "2027-02-02T00:00Z", "2027-03-01T08:00+01:00"),
        ("0 0 * 2 MON#5", "2027-01-01T00:00Z", "2044-02-29T00:00+01:00"),
        ("0 8 13 * 5", "2027-01-01T12:00Z", "2027-01-08T08:00+01:00"),
        ("0 0 1 1 *", "9000-06-01T00:00Z", "9001-01-01T00:00+01:00"),
    ],
)
def test_rare_dates_are_found(expression: str, after: str, expected: str) -> None:
    """Leap days, the ends of months, weekdays of months, and years far ahead."""
    assert _local(_cron(expression), after) == [expected]


def test_the_end_of_all_calendars_is_the_end() -> None:
    """No later instant can be computed, and that is no error."""
    timing = _cron("* * * * *")
    assert _local(timing, "9990-01-01T00:00Z") == ["never"]
    assert timing.next_after(10**30) is None
    assert timing.between(10**30, 10**31, 5).count == 0


def test_a_very_long_gap_has_at_least_so_many() -> None:
    """A century of minutes is not counted out, and the newest of them are exact."""
    timing = _cron("* * * * *")
    until = int(datetime.fromisoformat("2100-01-01T00:00Z").timestamp()) * SECOND
    gap = timing.between(0, until, 2)
    assert not gap.is_exact
    assert gap.count > 5_000_000
    assert gap.first == 60 * SECOND
    assert gap.latest == [until - 60 * SECOND, until]


def test_a_year_of_minutes_is_counted_exactly() -> None:
    """Two changes of the clock cancel each other out: 365 days have as many minutes as elsewhere."""
    begin = int(datetime.fromisoformat("2027-01-01T00:00Z").timestamp()) * SECOND
    gap = _cron("* * * * *").between(begin, begin + 365 * 86_400 * SECOND, 1)
    assert (gap.count, gap.is_exact) == (525_600, True)


@pytest.mark.measured
def test_ten_thousand_schedules_are_asked_quickly() -> None:
    """Their next instants, and what a week without the agent missed: each far below a millisecond."""
    now = int(datetime.fromisoformat("2027-01-15T12:00Z").timestamp()) * SECOND
    schedules = [
        _cron(f"{number % 60} {number % 24} * * *", ZONES[number % 6]) for number in range(10_000)
    ]
    began = process_time()
    for number, schedule in enumerate(schedules):
        schedule.next_after(now + number)
    asked = process_time()
    for schedule in schedules[:1000]:
        assert schedule.between(now - 7 * 86_400 * SECOND, now, 10).count == 7
    counted = process_time()
    assert asked - began < 0.5
    assert counted - asked < 0.5
