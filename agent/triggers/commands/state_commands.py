"""Commands on the state of a trigger: pause, resume, reset."""

from typing import Any

from agent.core.state_machine import TRIGGER, TriggerStatus, moved
from agent.store.db.database import Connection
from agent.store.db.json_values import decode
from agent.store.engine.trigger_rows import TriggerRow
from agent.tasks.errors import RefusedError
from agent.triggers.commands.command_plan import (
    BY_OPERATOR,
    CommandPlan,
    Planner,
    change,
    counted,
    readable_timing,
)
from agent.triggers.documents import zone_of
from agent.triggers.local_time import shown_time
from agent.triggers.run_builder import RunBuilder
from agent.triggers.schedules.schedule_plan import SchedulePlanner, find_due, next_values
from agent.triggers.specs import SCHEDULE, WATCH
from agent.triggers.watch_plan import SKIPPED_BY_RESUME


def pause(until_us: int | None, reason: str | None, kind: str | None = None) -> Planner:
    """Start nothing by itself, until a time or until it is resumed; queued runs stay queued."""

    def plan(_connection: Connection, row: TriggerRow, now: int) -> CommandPlan:
        if row.status == TriggerStatus.BROKEN:
            raise RefusedError(f"it is broken and starts nothing: {row.problem}")
        if until_us is not None and until_us <= now:
            raise RefusedError(f"{shown_time(until_us, zone_of(row))} is not in the future")
        values: dict[str, Any] = {
            "pause_reason": reason or BY_OPERATOR,
            "paused_until": until_us,
            "pause_kind": kind,
            "next_at": until_us,
        }
        if row.status == TriggerStatus.PAUSED:
            if all(getattr(row, name) == value for name, value in values.items()):
                return CommandPlan(None, "already paused")
        else:
            values["status"] = moved(TRIGGER, "trigger.paused", row.status)
        until = "" if until_us is None else f" until {shown_time(until_us, zone_of(row))}"
        return CommandPlan(change(row, values), f"paused{until}")

    return plan


def resume(builder: RunBuilder, *, catch_up: bool) -> Planner:
    """End a pause. Instants and items of the pause are skipped, unless they are to be caught up."""

    def plan(connection: Connection, row: TriggerRow, now: int) -> CommandPlan:
        if row.status == TriggerStatus.ACTIVE:
            return CommandPlan(None, "it is active already")
        if row.status == TriggerStatus.BROKEN:
            return _repaired(row, now)
        if row.kind == SCHEDULE and catch_up:
            return _caught_up(row, now)
        if row.kind == SCHEDULE:
            # The daemon calls this when the time of a pause is over.
            update = SchedulePlanner(connection, builder, row, now).plan()
            skipped = sum(mark.count or 1 for mark in update.marks)
            rest = f"; {counted(skipped, 'instant')} of the pause skipped" if skipped else ""
            return CommandPlan(update, f"resumed{rest}")
        values = {"next_at": now, "skip_items": None if catch_up else SKIPPED_BY_RESUME}
        rest = "start tasks" if catch_up else "are skipped"
        message = f"resumed; items that came meanwhile {rest}"
        return CommandPlan(change(row, _resumption(row, now) | values), message)

    return plan


def reset() -> Planner:
    """Let a watcher start from nothing: its next poll is a first one. Known items stay known."""

    def plan(_connection: Connection, row: TriggerRow, now: int) -> CommandPlan:
        if row.kind != WATCH:
            raise RefusedError("it is a schedule, and only a watcher has a cursor to reset")
        values: dict[str, Any] = {"cursor": None, "polls": 0}
        if row.status == TriggerStatus.ACTIVE:
            values["next_at"] = now
        first = decode(row.spec).get("first", "baseline")
        return CommandPlan(change(row, values), f"reset; its next poll is a first one ({first})")

    return plan


def _repaired(row: TriggerRow, now: int) -> CommandPlan:
    """Take a broken trigger into use again, if its definition can be read now."""
    values: dict[str, Any] = {
        "status": moved(TRIGGER, "trigger.repaired", row.status),
        "problem": None,
        "resumed_at": now,
    }
    if row.kind == WATCH:
        return CommandPlan(change(row, values | {"next_at": now}), "in use again")
    timing = readable_timing(row)
    # The pass of the daemon then gives the instants since the last one their fates.
    first = timing.next_after(now if row.last_nominal is None else row.last_nominal)
    return CommandPlan(change(row, values | next_values(timing, first)), "in use again")


def _caught_up(row: TriggerRow, now: int) -> CommandPlan:
    """Leave the instants of the pause to the next pass of the daemon, as after an outage."""
    timing = readable_timing(row)
    base = now if row.last_nominal is None else row.last_nominal
    values = _resumption(row, now) | next_values(timing, timing.next_after(base))
    policy = decode(row.spec).get("catch_up", "latest")
    missed = find_due(row, timing, now, 1)
    count = missed.missed_count + (missed.on_time is not None)
    rest = f"; {counted(count, 'instant')} to catch up (catch_up: {policy})" if count else ""
    return CommandPlan(change(row, values), f"resumed{rest}")


def _resumption(row: TriggerRow, now: int) -> dict[str, Any]:
    return {
        "status": moved(TRIGGER, "trigger.resumed", row.status),
        "pause_reason": None,
        "paused_until": None,
        "pause_kind": None,
        "resumed_at": now,
    }
