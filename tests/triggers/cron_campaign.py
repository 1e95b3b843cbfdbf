"""Compares the instants of cron expressions with Debian's cron, over every minute of ten years.

`make cron` runs it, for a quarter of an hour. `make test` compares the days around changes of clocks alone.
"""

import argparse
import sys
import time
from datetime import UTC, datetime
from itertools import pairwise
from zoneinfo import ZoneInfo

from agent.triggers.local_time import to_local
from agent.triggers.schedules.instants import Timing
from tests.support.debian_cron import DENSE, SPARSE, ZONES, Minutes, read_job

MORE_ZONES = [
    "Antarctica/Troll",  # by two hours
    "America/Havana",  # at midnight
    "America/Nuuk",  # at the last hour of a Saturday
    "Asia/Beirut",
    "Pacific/Auckland",
    "Pacific/Chatham",  # at a quarter to three
    "UTC",
]


def differences(expression: str, zone: str, minutes: Minutes) -> list[str]:
    """Return what differs between the agent and the model in one span, for people."""
    timing = Timing.of({"cron": expression, "timezone": zone}, 0)
    expected = minutes.instants(read_job(expression))
    found = []
    instant = timing.next_after(minutes.after_us)
    while instant is not None and instant <= minutes.until_us:
        found.append(instant)
        instant = timing.next_after(instant)
    lines = [
        f"{what} {to_local(instant, timing.zone).isoformat()}"
        for what, instants in (
            ("missing", sorted(set(expected) - set(found))),
            ("surplus", sorted(set(found) - set(expected))),
        )
        for instant in instants
    ]
    if any(later <= earlier for earlier, later in pairwise(found)):
        lines.append("instants are not in ascending order")
    gap = timing.between(minutes.after_us, minutes.until_us, 100)
    if not gap.is_exact or gap.count != len(expected):
        lines.append(f"{len(expected)} instants are counted as {gap.count}")
    if gap.latest != expected[-100:]:
        lines.append("the newest instants differ")
    return lines


def main() -> int:
    """Compare year after year, zone after zone; return 1 if anything differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first-year", type=int, default=2024)
    parser.add_argument("--years", type=int, default=10)
    parser.add_argument("--zone", action="append", help="only this zone; may be given repeatedly")
    arguments = parser.parse_args()
    began = time.monotonic()
    instants = failures = 0
    for zone in arguments.zone or [*ZONES, *MORE_ZONES]:
        for year in range(arguments.first_year, arguments.first_year + arguments.years):
            begin, end = (datetime(y, 1, 1, tzinfo=UTC) for y in (year, year + 1))
            minutes = Minutes.of(ZoneInfo(zone), begin, end)
            for expression in [*SPARSE, *DENSE]:
                lines = differences(expression, zone, minutes)
                failures += len(lines)
                for line in lines[:10]:
                    print(f"  {expression} in {zone}, {year}: {line}")
            instants += len(minutes.wall)
        print(
            f"{zone}: {arguments.years} years, {len(SPARSE) + len(DENSE)} expressions,"
            f" {failures} differences so far ({time.monotonic() - began:.0f} s)",
            flush=True,
        )
    print(f"{instants:,} minutes compared: {failures or 'no'} differences")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
