"""The passes over due schedules: one for the daemon's timer, one for its start.

A pass reads due triggers, plans them outside of any transaction, and lets `fire` apply each plan. It
is a plain function of the database and the clock, so tests and the simulator call it themselves.
A stale plan changes nothing: the next round plans again from the new row.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Set
from dataclasses import dataclass
from typing import Final

import structlog

from agent.config.models import BudgetSettings
from agent.core.clock import SECOND, Clock, to_iso
from agent.core.state_machine import TRIGGER, TriggerStatus, moved
from agent.store.db.database import Connection, Database
from agent.store.db.json_values import decode
from agent.store.engine import firing_rows, trigger_rows
from agent.store.engine.trigger_rows import TriggerRow
from agent.tasks.operator.operator import Operator
from agent.tasks.read_models.spending import day_document
from agent.tasks.rules.firings.trigger_update import FireResult, TriggerUpdate
from agent.tasks.state.graph_cache import GraphCache
from agent.triggers.kept_reader import KeptReader
from agent.triggers.run_builder import RunBuilder, instant_key
from agent.triggers.schedules.schedule_plan import LATE_US, SchedulePlanner, next_values, timing_of
from agent.triggers.specs import SCHEDULE
from agent.triggers.watch_plan import longest_delay_seconds

log = structlog.get_logger(__name__)

MOST_AT_ONCE: Final = 500
_MOST_ROUNDS: Final = 1000
_MOST_SKIPPED: Final = 1000
"""Instants that are still to come and have a fate already."""

Fire = Callable[[TriggerUpdate], Awaitable[FireResult]]


@dataclass(frozen=True, slots=True)
class ScheduleRound:
    """The result of one pass over the schedules."""

    at: int
    """When it looked."""
    plans: list[TriggerUpdate]
    next_due: int | None
    """When the next schedule is due that is neither planned here nor left out."""
    next_release: int | None
    """When the next queued run may start that waits for its time only."""

    @property
    def next_time(self) -> int | None:
        """When to look again."""
        times = (self.next_due, self.next_release)
        return min((time for time in times if time is not None), default=None)


class SchedulePass:
    """Fires the schedules of one database that are due."""

    def __init__(self, database: Database, clock: Clock, budget: BudgetSettings) -> None:
        self._reader = KeptReader(database)
        self.clock = clock
        self.budget = budget
        self._builder = RunBuilder(GraphCache())
        self._in_order: dict[str, int] = {}
        """The versions of active triggers whose next time was in order at `_checked_at`."""
        self._checked_at = 0
        self._started_us = self._monotonic_us()
        """By the monotonic clock: when the agent was started, or the machine woke."""
        self._ahead_us = clock.now() - self._started_us

    def close(self) -> None:
        """Close the connection that it keeps."""
        self._reader.close()

    def plan_due(self) -> list[TriggerUpdate]:
        """Return the plans for schedules that are due now, and for queued runs that may start."""
        return self.look().plans

    def look(
        self, busy: Set[str] = frozenset(), most: int = MOST_AT_ONCE, *, releases: bool = True
    ) -> ScheduleRound:
        """Plan the due triggers, except the `busy` ones, and compute the time of the next pass.

        `releases` adds the queued runs that may start.
        """
        now = self.clock.now()
        self._note_sleep(now)
        with self._reader.connect() as connection:
            rows = trigger_rows.due(connection, SCHEDULE, now, most, busy)
            exhausted = _exhausted(connection, self.budget, now) if rows else None
            plans = [self._plan(connection, row, now, exhausted) for row in rows]
            if releases:
                planned = {plan.trigger_id for plan in plans} | busy
                waiting = firing_rows.releasable(connection, now)
                plans += [
                    TriggerUpdate(trigger_id) for trigger_id in waiting if trigger_id not in planned
                ]
            # Every due trigger is planned or busy, unless there was no capacity for more.
            next_due = trigger_rows.next_time(connection, SCHEDULE, now)
            next_release = firing_rows.next_release(connection, now)
        if len(rows) >= most:
            next_due = now
        return ScheduleRound(now, plans, next_due, next_release)

    def _note_sleep(self, now: int) -> None:
        """Count a machine that woke, and a clock that was set forward, as a start."""
        monotonic_us = self._monotonic_us()
        if now - monotonic_us - self._ahead_us > LATE_US:
            self._started_us = monotonic_us
        self._ahead_us = now - monotonic_us

    def _monotonic_us(self) -> int:
        return int(self.clock.monotonic() * SECOND)

    def next_time(self) -> int | None:
        """Return when the next schedule is due, or the next queued run may start."""
        with self._reader.connect() as connection:
            times = (
                trigger_rows.next_time(connection, SCHEDULE),
                firing_rows.next_release(connection, self.clock.now()),
            )
        return min((time for time in times if time is not None), default=None)

    def plan_corrections(self) -> list[TriggerUpdate]:
        """Return plans that pull back a next time which a clock that ran ahead has set too late.

        A trigger that was in order stays so until it changes, or until the clock is set back: it is
        not read again. With ten thousand schedules that is the difference of a second each minute.
        """
        if self.clock.now() < self._checked_at:
            self._in_order.clear()
        with self._reader.connect() as connection:
            versions = trigger_rows.active_versions(connection)
            changed = sorted(versions.items() - self._in_order.items())
            rows = trigger_rows.find_all(connection, [trigger_id for trigger_id, _ in changed])
            # Later than the rows: a poll that was recorded meanwhile would seem to be ahead of it.
            now = self.clock.now()
            plans = [
                _correction(connection, row, now)
                if row.kind == SCHEDULE
                else _watch_correction(row, now)
                for row in rows
                if row.status == TriggerStatus.ACTIVE
            ]
        corrections = [plan for plan in plans if plan is not None]
        # With the versions that were checked: another process may have changed a row since.
        checked = {row.id: row.version for row in rows}
        self._in_order = {
            schedule_id: checked.get(schedule_id, version)
            for schedule_id, version in versions.items()
        }
        for plan in corrections:
            del self._in_order[plan.trigger_id]
        self._checked_at = now
        return corrections

    def plan_runs(self, trigger_id: str, nominals: list[int]) -> TriggerUpdate | None:
        """Return the plan that starts missed instants of a schedule; None if it is gone."""
        now = self.clock.now()
        with self._reader.connect() as connection:
            row = trigger_rows.find(connection, trigger_id)
            if row is None:
                return None
            return SchedulePlanner(connection, self._builder, row, now).plan_runs(nominals)

    def _plan(
        self, connection: Connection, row: TriggerRow, now: int, exhausted: str | None
    ) -> TriggerUpdate:
        try:
            planner = SchedulePlanner(
                connection,
                self._builder,
                row,
                now,
                exhausted=exhausted,
                running_since=self._started_us + self._ahead_us,
            )
            return planner.plan()
        except Exception as error:
            # One definition that this program cannot read must not stop the others.
            log.exception("schedule.unreadable", trigger=row.id)
            return broken(row, error)


def broken(row: TriggerRow, error: Exception) -> TriggerUpdate:
    """Return the plan that takes a trigger out of use whose definition cannot be read."""
    problem = f"{type(error).__name__}: {error}"
    values = {"next_at": None, "problem": problem}
    if row.status == TriggerStatus.ACTIVE:
        values["status"] = moved(TRIGGER, "trigger.broken", row.status)
    return TriggerUpdate(row.id, row.version, values=values)


def _correction(connection: Connection, row: TriggerRow, now: int) -> TriggerUpdate | None:
    try:
        timing = timing_of(row)
    except Exception:
        # The pass takes it out of use when it is due.
        return None
    expected = timing.next_after(now)
    for _ in range(_MOST_SKIPPED):
        if expected is None or (row.next_nominal is not None and row.next_nominal <= expected):
            return None
        key = instant_key(expected)
        if not firing_rows.known_keys(connection, row.id, [key]):
            break
        # A person skipped it, or it has started.
        expected = timing.next_after(expected)
    log.warning(
        "schedule.corrected",
        trigger=row.id,
        was=to_iso(row.next_nominal),
        now=to_iso(expected),
    )
    values = {**next_values(timing, expected), "last_nominal": min(row.last_nominal or now, now)}
    return TriggerUpdate(row.id, row.version, values=values)


def _watch_correction(row: TriggerRow, now: int) -> TriggerUpdate | None:
    """Return the plan that polls a watcher now whose next poll is later than it can be."""
    every_seconds = decode(row.spec).get("every_seconds", 900.0)
    latest = now + int(longest_delay_seconds(every_seconds, row.failures) * SECOND)
    if row.next_at is None or row.next_at <= latest:
        return None
    log.warning("watcher.corrected", trigger=row.id, was=to_iso(row.next_at), now=to_iso(now))
    values = {"next_at": now, "owner": None, "owned_until": None}
    return TriggerUpdate(row.id, row.version, values=values)


def _exhausted(connection: Connection, budget: BudgetSettings, now: int) -> str | None:
    """Return why nothing more may start today, if the day's budget is used up."""
    if not (budget.daily_tokens or budget.daily_usd or budget.daily_seconds):
        return None
    day = day_document(connection, budget, now)
    for name in ("tokens", "usd", "seconds"):
        limit = day[f"{name}_limit"]
        if limit is not None and day[name] >= limit:
            return f"the budget of the day is exhausted ({day[name]:g} of {limit:g} {name})"
    return None


def run_schedules_now(schedules: SchedulePass, operator: Operator) -> Counter[str]:
    """Do the same in transactions of its own, where no worker runs: at a start."""
    fates: Counter[str] = Counter()
    for _ in range(_MOST_ROUNDS):
        plans = [plan for plan in schedules.plan_due() if plan.version is not None]
        for plan in plans:
            fates.update(str(fate) for fate in operator.fire(plan).fates.values())
        if not plans:
            break
    return fates
