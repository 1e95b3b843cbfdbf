"""Triggers on a real database with a clock that stands still until the test moves it.

Times of tests are seconds from `BEGIN`, when every trigger of a bench is defined.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from agent.config.models import BudgetSettings
from agent.core.clock import SECOND, Clock
from agent.store.db.database import Connection, Database
from agent.store.engine import firing_rows, trigger_rows, workflow_versions
from agent.store.engine.trigger_rows import TriggerRow
from agent.tasks.rules.firings.trigger_update import FireResult, Run, TriggerUpdate
from agent.triggers import sync
from agent.triggers.commands.trigger_commands import TriggerCommands
from agent.triggers.schedules.passes import SchedulePass
from agent.triggers.sync import TriggerChanges
from agent.workflows.graph import Graph, Step
from tests.support.engine import Hand, find_violations, graph, step

BEGIN = 1_800_000_000 * SECOND
"""The 15th of January 2027, 08:00:00 UTC."""
DIRECTORY = "here"
WORKFLOW = "tested"


class BenchClock(Clock):
    """A clock that moves only when the test moves it."""

    def __init__(self) -> None:
        super().__init__()
        self._now_us = BEGIN

    def now(self) -> int:
        return self._now_us

    def set_to(self, instant_us: int) -> None:
        """Keep the test's time, whatever the database's is."""

    def move_to(self, seconds: float) -> None:
        """Show a time, in seconds from the beginning."""
        self._now_us = BEGIN + round(seconds * SECOND)


class TriggerBench(Hand):
    """A worker by hand, the passes over schedules, and what they left."""

    def __init__(self, database: Database) -> None:
        self.still = BenchClock()
        database.clock = self.still
        super().__init__(database)
        self.schedules = SchedulePass(database, self.still, BudgetSettings())
        self.commands = TriggerCommands(database, self.still)

    def close(self) -> None:
        """Close the connections."""
        self.schedules.close()
        super().close()

    def at(self, seconds: float) -> None:
        """Move the clock, forward or back."""
        self.still.move_to(seconds)

    @property
    def now(self) -> int:
        """The time that the clock shows."""
        return self.still.now()

    def define(
        self, *schedules: dict[str, Any], watch: tuple[dict[str, Any], ...] = (), **options: Any
    ) -> TriggerChanges:
        """Record a workflow with these triggers as the one in force."""
        steps: list[Step] = options.pop("steps", None) or [step("work")]
        on = {"schedule": list(schedules), "watch": list(watch)}
        return self.record(graph(*steps, name=WORKFLOW, on=on, **options))

    def record(self, definition: Graph) -> TriggerChanges:
        """Record a workflow as the one in force, as the daemon does."""
        with self.database.connect("writer") as tx, tx.transaction():
            version = self._register(tx, definition)
            return sync.sync_workflow(tx, definition, version, DIRECTORY, self.now)

    def _register(self, tx: Connection, definition: Graph) -> int:
        return workflow_versions.register(
            tx, definition.name, definition.hash, definition.text, None, None, self.now
        )

    def remove(self) -> list[str]:
        """Remove the workflow's triggers, as a daemon does whose file is gone."""
        with self.database.connect("writer") as tx, tx.transaction():
            return sync.remove_triggers(tx, WORKFLOW, DIRECTORY, self.now)

    @property
    def row(self) -> TriggerRow:
        """The only trigger."""
        (row,) = trigger_rows.all_rows(self._connection)
        return row

    def change(self, **values: Any) -> None:
        """Change columns of the only trigger, as a command does."""
        row = self.row
        assert self.fire(TriggerUpdate(row.id, row.version, values=values)).status == "applied"

    def fire(self, update: TriggerUpdate) -> FireResult:
        """Apply a plan in a transaction of its own."""
        return self.operator.fire(update)

    def fire_runs(self, *runs: Run, **values: Any) -> FireResult:
        """Apply a plan of these runs on the only trigger."""
        row = self.row
        return self.fire(TriggerUpdate(row.id, row.version, runs=list(runs), values=values))

    def fire_at(self, *seconds: float, **options: Any) -> FireResult:
        """Apply a plan of runs that are due at these times."""
        return self.fire_runs(*(self.run_of(each, **options) for each in seconds))

    def run_of(self, seconds: float, **options: Any) -> Run:
        """Return the run of an instant."""
        nominal = BEGIN + round(seconds * SECOND)
        context = {"kind": "schedule", **options.pop("context", {})}
        version = options.pop("workflow_version", 1)
        return Run(((str(seconds), nominal),), nominal, {}, context, version, **options)

    def run_pass(self) -> list[FireResult]:
        """Give everything that is due its fate, as one pass of a daemon."""
        return [self.fire(plan) for plan in self.schedules.plan_due()]

    def correct(self) -> int:
        """Pull back times that a wrong clock has set; return how many."""
        plans = self.schedules.plan_corrections()
        for plan in plans:
            self.fire(plan)
        return len(plans)

    def firings(self) -> list[dict[str, Any]]:
        """Return all firings, in the order of their times."""
        names = firing_rows.COLUMNS
        columns = ", ".join(f'"{name}"' for name in names)
        rows = self.rows(f"SELECT {columns} FROM firings ORDER BY nominal_at, key")
        return [dict(zip(names, row, strict=True)) for row in rows]

    def fates(self) -> list[tuple[Any, ...]]:
        """Return the fates of instants: (second, status), and (first, last, status, count)."""
        fates: list[tuple[Any, ...]] = []
        for each in self.firings():
            first, last = (_seconds(each[name]) for name in ("nominal_at", "until_at"))
            single = (first, each["status"])
            is_one = last is None or (last == first and each["count"] == 1)
            fates.append(single if is_one else (first, last, each["status"], each["count"]))
        return fates

    def statuses_by_key(self) -> dict[str, str]:
        """Return the fate of every key."""
        return {each["key"]: each["status"] for each in self.firings()}

    def reason(self, key: str) -> str:
        """Return why a firing has its fate."""
        (found,) = [each["reason"] for each in self.firings() if each["key"] == key]
        return str(found)

    def task_ids(self) -> list[str]:
        """Return the tasks of triggers, the oldest first."""
        rows = self.rows("SELECT id FROM tasks WHERE trigger_id IS NOT NULL ORDER BY id")
        return [str(row[0]) for row in rows]

    def open_ids(self) -> list[str]:
        """Return the tasks of triggers that have not ended."""
        return [each for each in self.task_ids() if self.status(each) == "running"]

    def end(self, task_id: str, *, is_failed: bool = False) -> None:
        """Let the only step of a task end, and start what waited for it, as a worker does."""
        self.commit()
        done = (self.fail if is_failed else self.succeed)("work", task_id=task_id)
        for trigger_id in done.result.ended_triggers:
            self.fire(TriggerUpdate(trigger_id))

    def trigger_of(self, task_id: str) -> dict[str, Any]:
        """Return what a task sees as `trigger`."""
        found = self.document(task_id)["trigger"]
        assert isinstance(found, dict)
        return found

    def event_types(self) -> list[str]:
        """Return the types of events that belong to no task."""
        rows = self.rows("SELECT type FROM events WHERE task_id IS NULL ORDER BY id")
        return [str(row[0]) for row in rows]


def _seconds(instant_us: int | None) -> float | None:
    return None if instant_us is None else (instant_us - BEGIN) / SECOND


@pytest.fixture
def bench(database: Database) -> Iterator[TriggerBench]:
    """Return triggers on both databases; the checker must find nothing at the end."""
    bench = TriggerBench(database)
    yield bench
    bench.close()
    assert find_violations(database) == []
