"""A watched directory from its poll to the task, in a real database."""

import asyncio
from pathlib import Path
from typing import Any

from agent.steps.attempt.services import Limits
from agent.store.db.database import Database
from agent.store.db.json_values import decode
from agent.store.engine import trigger_rows
from agent.tasks.operator.operator import Operator
from agent.tasks.rules.firings.trigger_update import FireResult, TriggerUpdate
from agent.triggers.watch_runner import WatchRunner
from tests.support.recorded_triggers import StillClock, fates, record_workflow, trigger_row

WATCHED = """\
name: inbox
inputs: {file: {type: text}}
on:
  watch:
    - {id: drop, path: {path: inbox, quiet: 30s, events: [created, changed, deleted]}, every: 15m,
       inputs: {file: "{{ trigger.item.event }} {{ trigger.item.name }}"}}
steps: {rest: {wait: 1s}}
"""
ID = "inbox:drop"
QUARTER = 900


def poll(database: Database) -> None:
    """Poll what is due, and record it."""

    async def fire(update: TriggerUpdate) -> FireResult:
        return await asyncio.to_thread(Operator(database, database.clock).fire, update)

    async def story() -> None:
        runner = WatchRunner(database, database.clock, Limits(), fire)
        await runner.run_due()
        await runner.aclose()

    asyncio.run(story())


def inputs(database: Database) -> list[Any]:
    """Return the input of each task, the oldest first."""
    with database.connect("reader") as connection:
        rows = connection.query("SELECT input FROM tasks ORDER BY id")
    return [decode(row[0])["file"] for row in rows]


def test_each_change_of_a_quiet_file_starts_one_task(
    still: Database, clock: StillClock, tmp_path: Path
) -> None:
    """The baseline starts none; neither does an unmounted directory, nor its return."""
    watched = tmp_path / "inbox"
    watched.mkdir()
    (watched / "old.txt").write_text("x")
    clock.skip(10 * 365 * 86400)
    record_workflow(still, WATCHED, str(tmp_path / "inbox.yaml"))
    poll(still)
    assert list(fates(still, ID).values()) == ["baseline"]

    (watched / "new.txt").write_text("one")
    clock.skip(QUARTER)
    poll(still)
    assert inputs(still) == []
    # It is polled again as soon as the file may be quiet.
    assert trigger_row(still, ID).next_at == clock.now() + 30_000_000
    clock.skip(31)
    poll(still)
    assert inputs(still) == ["created new.txt"]

    with still.connect("reader") as connection:
        before = trigger_rows.cursor_of(connection, ID)
    watched.rename(tmp_path / "away")
    clock.skip(QUARTER)
    poll(still)
    row = trigger_row(still, ID)
    assert row.failures == 1 and row.last_error is not None and "is gone" in row.last_error
    with still.connect("reader") as connection:
        assert trigger_rows.cursor_of(connection, ID) == before
    (tmp_path / "away").rename(watched)
    (watched / "old.txt").unlink()
    for _ in range(3):
        clock.skip(QUARTER * 2)
        poll(still)
    assert inputs(still) == ["created new.txt", "deleted old.txt"]
    assert trigger_row(still, ID).failures == 0
