"""The search for instants to backfill: it looks at all of them, and ends in time."""

import pytest

from agent.store.db.database import Database
from agent.triggers.commands import backfill
from agent.triggers.commands.trigger_commands import TriggerCommands
from tests.support.recorded_triggers import StillClock, instant, record_workflow, run_pass

HOURLY = """\
name: report
on: {schedule: {id: hourly, every: 1h, start: 2026-03-01T00:00:00Z, timezone: UTC, overlap: allow}}
steps: {rest: {wait: 1s}}
"""
ID = "report:hourly"


def at(hour: int) -> str:
    """Return the key of an instant of the first day."""
    return f"2026-03-01T{hour:02d}:00:00.000Z"


def test_a_search_that_takes_too_long_says_where_to_go_on(
    still: Database, clock: StillClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many instants have a fate, those after them are found: now, or from the named one on."""
    assert record_workflow(still, HOURLY, "/w/report.yaml") == [ID]
    commands = TriggerCommands(still, clock)
    commands.backfill(ID, instant(at(0)), instant(at(9)))
    run_pass(still)
    span = (instant(at(0)), instant(at(12)))
    monkeypatch.setattr(backfill, "_BATCH", 4)
    assert commands.backfill(ID, *span, dry_run=True).instants == [at(10), at(11), at(12)]
    monkeypatch.setattr(backfill, "SEARCH_SECONDS", 0.0)
    result = commands.backfill(ID, *span)
    assert not result.is_changed
    assert result.message.startswith("every instant before 2026-03-01 04:00 UTC was started")
    assert result.message.endswith(f"search on from {at(4)}")
    assert commands.backfill(ID, instant(at(10)), span[1]).message == "queued 3 runs"
    whole = commands.backfill(ID, instant(at(9)), span[1])
    assert whole.message.endswith("nothing to run"), "the search has reached the end"
