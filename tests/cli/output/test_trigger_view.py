"""How schedules and watchers are printed: times near and far, strips, remarks."""

import pytest
from freezegun import freeze_time

from agent.cli.output import trigger_view


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.2, "now"),
        (-0.2, "now"),
        (5, "in 5 s"),
        (-58, "58 s ago"),
        (59.5, "in 1 min"),
        (3599, "in 1 h"),
        (-3 * 3600, "3 h ago"),
        (47 * 3600, "in 2 d"),
        (-400 * 86_400, "400 d ago"),
    ],
)
def test_distances_are_in_their_largest_unit(seconds: float, text: str) -> None:
    """What is almost a minute, an hour or a day counts as one."""
    assert trigger_view.distance(seconds) == text


@freeze_time("2026-03-02T23:30:00Z")
def test_times_are_in_the_zone_of_the_schedule() -> None:
    """With the date unless it is today there; a zone that is unknown here means local time."""
    assert (
        trigger_view.when("2026-03-04T00:00:00Z", "Asia/Tokyo") == "2026-03-04 09:00 JST (in 1 d)"
    )
    assert trigger_view.when("2026-03-04T00:00:00Z", "UTC") == "2026-03-04 00:00 (in 1 d)"
    # In Tokyo it is the third of March already.
    assert trigger_view.when("2026-03-03T03:00:00Z", "Asia/Tokyo") == "12:00 JST (in 4 h)"
    assert trigger_view.when("2026-03-03T03:00:00Z", "UTC") == "2026-03-03 03:00 (in 4 h)"
    assert " (in 1 d)" in trigger_view.when("2026-03-04T00:00:00Z", "CET-1CEST,M3.5.0,M10.5.0/3")
    assert trigger_view.when(None, "UTC") == ""


@pytest.mark.parametrize(("until", "number"), [("2027", "8,784"), ("2037", "at least 8,784")])
def test_a_range_has_its_number_of_instants(
    until: str, number: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of many years it is a lower bound."""
    firing = {
        "status": "missed",
        "nominal_at": "2026-01-01T00:00:00.000Z",
        "until_at": f"{until}-01-01T00:00:00.000Z",
        "count": 8784,
        "task": None,
        "recorded_at": "2037-01-02T00:00:00.000Z",
        "reason": None,
    }
    trigger_view.print_firings([firing], "UTC")
    assert f": {number} instants" in capsys.readouterr().out


def test_a_strip_has_one_mark_for_each_fate_the_newest_last() -> None:
    """Every status of a firing has its mark."""
    recent = [{"status": status} for status in trigger_view.MARKS]
    assert trigger_view.strip(recent) == "·✗–○◔✓"


def test_remarks_name_pauses_problems_and_failures() -> None:
    """One line for all of them; an active trigger without problems has none."""
    entry = {"status": "active", "problem": None, "timezone": "UTC", "paused_until": None}
    entry |= {"kind": "schedule", "next_at": "2027-01-15T08:00:00.000Z"}
    assert trigger_view.remarks(entry) == ""
    paused = entry | {"status": "paused", "pause_reason": "its last 3 tasks failed"}
    assert trigger_view.remarks(paused) == "paused: its last 3 tasks failed"
    failing = entry | {"alert": "failed", "last_error": "no\nanswer", "problem": "line 3"}
    assert trigger_view.remarks(failing) == "problem: line 3; failed; no answer"
