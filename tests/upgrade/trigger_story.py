"""Triggers in the middle of their work: recorded before an upgrade, and going on after it."""

import asyncio
from datetime import UTC, datetime
from typing import Any

from agent.core.clock import SECOND, Clock
from agent.steps.attempt.services import Limits
from agent.store.db.database import Database
from agent.tasks.operator.operator import Operator
from agent.triggers.commands.trigger_commands import TriggerCommands
from agent.triggers.watch_runner import WatchRunner
from tests.support.recorded_triggers import record_workflow, run_pass

NAME = "timed"
WORKFLOW = """\
name: timed
on:
  schedule:
    - {id: hourly, every: 1h, start: "2025-03-03T00:00", end: "2025-03-03T20:30", timezone: UTC,
       overlap: queue}
    - {id: held, cron: "0 9 * * *", timezone: UTC}
  watch:
    - id: lines
      every: 1h
      command:
        argv:
          - sh
          - -c
          - |
            echo '{"key": "one"}'
            echo '{"key": "two"}'
            test -z "$AGENT_CURSOR" || echo '{"key": "after '$AGENT_CURSOR'"}'
            echo '{"cursor": "first"}'
steps: {one: {wait: {signal: go}}}
"""
FATES = {
    "timed:hourly": ["missed", "queued", "skipped", "started"],
    "timed:lines": ["baseline", "baseline"],
}
"""What has become of instants and items before the upgrade."""
STARTED = 4
"""Tasks after it: the open one, the queued one, the newest missed instant, and the new item."""


class _EarlierClock(Clock):
    """A clock that shows what the story sets."""

    def __init__(self, hour: float) -> None:
        super().__init__()
        self.hour = hour

    def now(self) -> int:
        """Return the time of that hour."""
        start = datetime(2025, 3, 3, tzinfo=UTC).timestamp()
        return round(start + self.hour * 3600) * SECOND


def begin(url: str) -> None:
    """Record triggers and let some of their times pass: one task is open, and one run is queued."""
    clock = _EarlierClock(12.5)
    database = Database(url)
    database.clock = clock
    record_workflow(database, WORKFLOW)
    TriggerCommands(database, clock).pause("timed:held", reason="a holiday")
    _poll(database)
    # On time; on time while the first task is open; and long after the last of three.
    for hour in (13.001, 14.001, 17.5):
        clock.hour = hour
        run_pass(database)


def fates(database: Database) -> dict[str, list[str]]:
    """Return what has become of instants and items, by trigger."""
    found: dict[str, list[str]] = {}
    with database.connect("reader") as reader:
        for trigger_id, status in reader.query(
            "SELECT trigger_id, status FROM firings ORDER BY trigger_id, status"
        ):
            found.setdefault(trigger_id, []).append(status)
    return found


def go_on(database: Database) -> None:
    """Let due schedules and watchers fire, twice: the second time nothing is left to do."""
    for _ in range(2):
        run_pass(database)
        _poll(database)
        # What is due already must not wait for the next hour.
        TriggerCommands(database, database.clock).run("timed:lines")


def check(database: Database) -> None:
    """Check that each trigger went on where it was, and that nothing fired twice."""
    found = fates(database)
    assert found["timed:lines"] == ["baseline", "baseline", "started"]
    hourly = found["timed:hourly"]
    assert [hourly.count(status) for status in ("started", "late", "queued")] == [1, 2, 0]
    with database.connect("reader") as reader:
        rows = reader.query("SELECT id, status, pause_reason, polls FROM triggers ORDER BY id")
        keys = reader.query(
            "SELECT key FROM firings WHERE status = 'started' AND nominal_at IS NULL"
        )
    assert rows[0][:3] == ("timed:held", "paused", "a holiday")
    assert rows[2][3] > 1
    assert keys == [("after first",)]
    resumed = TriggerCommands(database, database.clock).resume("timed:held")
    assert resumed.message.startswith("resumed")


def _poll(database: Database) -> None:
    operator = Operator(database, database.clock)

    async def fire(update: Any) -> Any:
        return await asyncio.to_thread(operator.fire, update)

    async def story() -> None:
        runner = WatchRunner(database, database.clock, Limits(), fire)
        await runner.run_due()
        await runner.aclose()

    asyncio.run(story())
