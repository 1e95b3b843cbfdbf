"""Triggers as documents: what lists, pages and the API show."""

import pytest

from agent.core.state_machine import FiringStatus
from agent.store.db.database import Database
from agent.tasks.operator.operator import Operator
from agent.tasks.rules.firings.trigger_update import Mark, TriggerUpdate
from agent.triggers import documents
from agent.triggers.commands.trigger_commands import TriggerCommands
from tests.support.recorded_triggers import StillClock, record_workflow, run_pass, trigger_row

WORKFLOW = """\
name: report
on:
  schedule: {id: daily, cron: 0 9 * * *, timezone: Europe/Berlin}
  watch: {id: drop, command: {argv: ["true"]}, every: 5m}
steps: {rest: {wait: 1s}}
"""


def listed(database: Database, **options: object) -> dict[str, dict[str, object]]:
    """Return the list of triggers by their ids."""
    with database.connect("reader") as connection:
        found = documents.trigger_list(connection, now=database.clock.now(), **options)  # type: ignore[arg-type]
    return {entry["id"]: entry for entry in found}


def test_a_list_says_when_each_is_due(still: Database, clock: StillClock) -> None:
    """A schedule has its zone and its next instant, a watcher its source and its next poll."""
    record_workflow(still, WORKFLOW)
    found = listed(still)
    daily, drop = found["report:daily"], found["report:drop"]
    assert daily["next_at"] == "2026-03-03T08:00:00.000Z"
    assert (daily["timezone"], daily["when"]) == ("Europe/Berlin", "cron 0 9 * * *")
    assert (daily["last_at"], daily["recent"]) == (None, [])
    assert (drop["source"], drop["when"], drop["polls"]) == ("command", "every 5m", 0)
    assert drop["next_at"] == "2026-03-02T12:00:00.000Z"
    assert list(listed(still, kind="watch")) == ["report:drop"]
    assert listed(still, workflow="other") == listed(still, status="removed") == {}
    clock.skip(20 * 3600)
    run_pass(still)
    daily = listed(still)["report:daily"]
    assert daily["last_at"] == "2026-03-03T08:00:00.000Z"
    assert [firing["status"] for firing in daily["recent"]] == ["started"]  # type: ignore[attr-defined]


def test_what_is_skipped_is_not_next(still: Database, clock: StillClock) -> None:
    """Also where the stored time was computed again; a paused one has no next time."""
    record_workflow(still, WORKFLOW)
    commands = TriggerCommands(still, clock)
    row = trigger_row(still, "report:daily")
    commands.skip(row.id)
    values = {"next_at": row.next_at, "next_nominal": row.next_nominal}
    Operator(still, clock).fire(TriggerUpdate(row.id, row.version + 1, values=values))
    with still.connect("reader") as connection:
        document = documents.trigger_document(connection, trigger_row(still, row.id), clock.now())
    assert document["next_at"] == "2026-03-04T08:00:00.000Z"
    assert document["upcoming"][:2] == ["2026-03-04T08:00:00.000Z", "2026-03-05T08:00:00.000Z"]
    assert len(document["upcoming"]) == documents.UPCOMING
    assert document["last_at"] is None, "the skipped instant lies ahead"
    commands.pause(row.id, clock.now() + 3600_000_000, "moving")
    paused = listed(still)[row.id]
    assert (paused["next_at"], paused["pause_reason"]) == (None, "moving")
    assert paused["paused_until"] == "2026-03-02T13:00:00.000Z"


def test_pages_of_firings_repeat_and_lose_none(still: Database, clock: StillClock) -> None:
    """A baseline records many items at one instant: pages go by the key, too."""
    record_workflow(still, WORKFLOW)
    for number in range(2):
        marks = [Mark(f"item.{number}.{key}", FiringStatus.BASELINE) for key in range(7)]
        update = TriggerUpdate("report:drop", number + 1, marks=marks)
        assert Operator(still, clock).fire(update).status == "applied"
        clock.skip(1)
    cursor, keys = None, []
    with still.connect("reader") as connection:
        for _ in range(5):
            firings, cursor = documents.firings_page(connection, "report:drop", 3, cursor)
            keys += [firing["key"] for firing in firings]
        assert cursor is None
        with pytest.raises(documents.InvalidCursorError):
            documents.firings_page(connection, "report:drop", 3, "nonsense")
    assert len(keys) == len(set(keys)) == 14
    assert keys[0] == "item.1.6" and keys[-1] == "item.0.0"


def test_a_definition_that_cannot_be_read_is_still_shown(
    still: Database, clock: StillClock
) -> None:
    """A broken trigger has no times, and its problem."""
    record_workflow(still, WORKFLOW)
    spec = '{"cron":"x","timezone":"Nowhere/X"}'
    values = {"spec": spec, "status": "broken", "problem": "cron", "next_at": None}
    Operator(still, clock).fire(TriggerUpdate("report:daily", 1, values=values))
    broken = listed(still)["report:daily"]
    assert (broken["status"], broken["problem"], broken["next_at"]) == ("broken", "cron", None)
