from datetime import timedelta
from zoneinfo import ZoneInfo

import pytest

from agent.triggers.instants import Timing
from tests.support.debian_cron import DENSE, SPARSE, ZONES, Minutes, read_job, weeks_of_change

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
    """Every instant of the weeks of change of ten years; dense expressions in each fifth week."""
    local = ZoneInfo(zone)
    timings = {
        expression: (Timing.of({"cron": expression, "timezone": zone}, 0), read_job(expression))
        for expression in [*SPARSE, *DENSE]
    }
    for number, begin in enumerate(weeks_of_change(local, FIRST_YEAR, YEARS)):
        minutes = Minutes.of(local, begin, begin + timedelta(days=7))
        for expression in [*SPARSE, *(DENSE if number % 5 == 0 else [])]:
            timing, job = timings[expression]
            expected = minutes.instants(job)
            assert _instants(timing, minutes) == expected, (expression, zone, begin)
            gap = timing.between(minutes.after_us, minutes.until_us, 3)
            assert (gap.count, gap.is_exact) == (len(expected), True), (expression, zone, begin)
            assert gap.latest == expected[-3:], (expression, zone, begin)
