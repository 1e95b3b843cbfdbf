"""Triggers in a database without a daemon: recorded from a workflow's text, on a clock that stands still."""

from contextlib import closing
from datetime import datetime
from typing import Any

from agent.config.models import BudgetSettings
from agent.core.clock import SECOND, Clock
from agent.store.db.database import Database
from agent.store.engine import firing_rows, trigger_rows, workflow_versions
from agent.store.engine.trigger_rows import TriggerRow
from agent.tasks.operator.operator import Operator
from agent.triggers import sync
from agent.triggers.schedules.passes import SchedulePass
from agent.workflows.compile.compiler import compile_text

MONDAY_NOON = "2026-03-02T12:00:00Z"


class StillClock(Clock):
    """A clock that shows the time that the test sets."""

    def __init__(self, start: str = MONDAY_NOON) -> None:
        super().__init__()
        self._now_us = instant(start)

    def now(self) -> int:
        return self._now_us

    def skip(self, seconds: float) -> None:
        """Let time pass."""
        self._now_us += round(seconds * SECOND)


def instant(text: str) -> int:
    """Return the instant of an ISO time."""
    return round(datetime.fromisoformat(text).timestamp()) * SECOND


def record_workflow(database: Database, text: str, path: str | None = None) -> list[str]:
    """Record a workflow and its triggers as a daemon does; return the ids of new triggers."""
    graph = compile_text(text.encode(), "workflow.yaml")
    now = database.clock.now()
    with database.connect("writer") as tx, tx.transaction():
        version = workflow_versions.register(
            tx, graph.name, graph.hash, graph.text, text, path, now
        )
        return sync.sync_workflow(tx, graph, version, path, now).added


def remove_workflow(database: Database, name: str) -> None:
    """Mark the triggers of a workflow as removed."""
    with database.connect("writer") as tx, tx.transaction():
        for row in trigger_rows.of_workflow(tx, name):
            assert row.directory is not None
            sync.remove_triggers(tx, name, row.directory, database.clock.now())


def trigger_row(database: Database, trigger_id: str) -> TriggerRow:
    """Return a stored trigger."""
    with database.connect("reader") as connection:
        row = trigger_rows.find(connection, trigger_id)
    assert row is not None
    return row


def firings(database: Database, trigger_id: str) -> dict[str, dict[str, Any]]:
    """Return the firings of a trigger by their keys."""
    with database.connect("reader") as connection:
        rows = firing_rows.of_trigger(connection, trigger_id, 1000)
    return {row["key"]: row for row in rows}


def fates(database: Database, trigger_id: str) -> dict[str, str]:
    """Return what became of each instant or item."""
    return {key: row["status"] for key, row in firings(database, trigger_id).items()}


def run_pass(database: Database) -> None:
    """Do what the daemon does when schedules are due or queued runs may start."""
    schedules = SchedulePass(database, database.clock, BudgetSettings())
    operator = Operator(database, database.clock)
    with closing(schedules):
        for update in schedules.plan_due():
            operator.fire(update)
