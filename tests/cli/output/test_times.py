"""Times as commands print them, which depend on the clock of this machine."""

import pytest
from freezegun import freeze_time

from agent.cli.output import terminal

NOON = "2026-03-02T12:00:00Z"


@freeze_time(NOON)
@pytest.mark.parametrize(
    ("instant", "text"),
    [
        ("2026-03-02T11:59:57Z", "11:59:57"),
        ("2026-03-01T23:59:59Z", "2026-03-01 23:59"),
        ("2026-03-03T00:00:00Z", "2026-03-03 00:00"),
        (None, ""),
    ],
)
def test_a_time_of_another_day_has_its_date(instant: str | None, text: str) -> None:
    """One of today has the seconds instead."""
    assert terminal.moment(instant) == text


def test_what_has_not_ended_lasts_until_now() -> None:
    """The duration grows with the clock, and what is still to come shrinks to zero."""
    begin, end = "2026-03-02T11:59:00Z", "2026-03-02T12:00:05Z"
    with freeze_time(NOON) as frozen:
        assert terminal.seconds_between(begin, None) == 60
        assert terminal.seconds_until(end) == 5
        frozen.tick(30)
        assert terminal.seconds_between(begin, None) == 90
        assert terminal.seconds_between(begin, end) == 65
        assert terminal.seconds_until(end) == 0
