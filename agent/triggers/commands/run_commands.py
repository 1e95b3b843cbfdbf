"""Commands on the runs of a trigger: run now, skip the next instant, backfill past ones."""

from typing import Any, Final

from agent.core.clock import to_iso
from agent.core.state_machine import FiringStatus, TriggerStatus
from agent.store.db.database import Connection
from agent.store.db.json_values import decode
from agent.store.engine import firing_rows
from agent.store.engine.trigger_rows import TriggerRow
from agent.tasks.errors import RefusedError
from agent.tasks.rules.firings.trigger_update import Mark, Run, TriggerUpdate
from agent.triggers.commands import backfill as backfills
from agent.triggers.commands.command_plan import (
    BY_OPERATOR,
    CommandPlan,
    Planner,
    change,
    counted,
    readable_timing,
)
from agent.triggers.local_time import shown_time
from agent.triggers.run_builder import (
    InputsRefusedError,
    RunBuilder,
    instant_key,
    schedule_context,
)
from agent.triggers.schedules.instants import Timing
from agent.triggers.schedules.schedule_plan import find_due, next_values, stagger_us
from agent.triggers.specs import SCHEDULE, WATCH

MANUAL: Final = "manual/"
"""Prefixes of the keys of runs that a person started: none of them is an instant."""


def run(builder: RunBuilder, request_key: str | None) -> Planner:
    """Start a task of a schedule now, or let a watcher poll now."""

    def plan(connection: Connection, row: TriggerRow, now: int) -> CommandPlan:
        if row.kind == WATCH:
            if row.status != TriggerStatus.ACTIVE:
                raise RefusedError(f"it is {row.status}: resume it first; it then polls at once")
            return CommandPlan(change(row, {"next_at": now}), "it polls now")
        key, started = _manual_key(connection, row, now, request_key)
        if started is not None:
            return CommandPlan(None, f"already started as {started}", tasks=[started])
        spec = decode(row.spec)
        context = schedule_context(row, now, now, "manual")
        values = _inputs(builder, connection, row, spec, context)
        update = TriggerUpdate(row.id, row.version)
        update.runs.append(
            Run(
                ((key, None),),
                now,
                values,
                context,
                row.workflow_version,
                ignores_overlap=True,
                reason=BY_OPERATOR,
            )
        )
        return CommandPlan(update, "not started: its firings say why", is_run=True)

    return plan


def skip(request_key: str | None) -> Planner:
    """Let the next instant of a schedule pass: its row says so, and the one after it is next."""

    def plan(connection: Connection, row: TriggerRow, now: int) -> CommandPlan:
        _require_schedule(row, "has no instants to skip; pause it instead")
        timing = readable_timing(row)
        if request_key is not None:
            existing = firing_rows.by_request(connection, row.id, request_key)
            if existing is not None:
                return CommandPlan(
                    None, f"already skipped {shown_time(existing, timing.zone)}", [existing]
                )
        if row.status != TriggerStatus.ACTIVE:
            raise RefusedError(f"it is {row.status}: no instant of it starts a task")
        due = find_due(row, timing, now, 1)
        nominal = due.next_nominal
        while nominal is not None and _is_known(connection, row, nominal):
            nominal = timing.next_after(nominal)
        if nominal is None:
            raise RefusedError("it has no further instant")
        following = timing.next_after(nominal)
        key = instant_key(nominal)
        mark = Mark(key, FiringStatus.SKIPPED, BY_OPERATOR, nominal, run_id=request_key)
        update = TriggerUpdate(row.id, row.version, marks=[mark])
        if due.last is None:
            # Else instants before it still need their fates: its row alone blocks this one.
            update.values = {**next_values(timing, following), "last_nominal": nominal}
        rest = "; it has no further instant"
        if following is not None:
            rest = f"; next is {shown_time(following, timing.zone)}"
        return CommandPlan(update, f"skipped {shown_time(nominal, timing.zone)}{rest}", [nominal])

    return plan


def backfill(
    builder: RunBuilder, from_us: int, to_us: int, *, most: int | None, dry_run: bool
) -> Planner:
    """Queue runs for instants of the past that have no fate of their own, the oldest first."""
    limit = backfills.MOST if most is None else most
    if not 1 <= limit <= backfills.MOST_EVER:
        raise RefusedError(f"a backfill runs 1 to {backfills.MOST_EVER:,} instants at once")

    def plan(connection: Connection, row: TriggerRow, now: int) -> CommandPlan:
        _require_schedule(row, "has no instants to backfill")
        if from_us > now:
            raise RefusedError("a backfill runs instants of the past: it begins before now")
        if from_us > to_us:
            raise RefusedError("the first instant must not be later than the last one")
        span, timing = (from_us, min(to_us, now)), readable_timing(row)
        if timing.between(span[0] - 1, span[1], 0).first is None:
            return CommandPlan(None, "it has no instant in this time: nothing to run")
        backfill = backfills.find_backfill(connection, timing, row.id, span, limit)
        number = counted(len(backfill.instants), "run")
        if not backfill.instants:
            return CommandPlan(None, _nothing_found(backfill, timing, span[1]))
        if dry_run:
            return CommandPlan(None, f"would queue {number}{backfill.remark}", backfill.instants)
        update = _backfill_update(builder, connection, row, now, backfill.instants)
        waits = "; they start when it is resumed" if row.status == "paused" else ""
        return CommandPlan(update, f"queued {number}{backfill.remark}{waits}", backfill.instants)

    return plan


def _nothing_found(backfill: backfills.Backfill, timing: Timing, last_us: int) -> str:
    """Say that no instant is left to run, or where to go on with a search that took too long."""
    searched_us = backfill.searched_until_us
    following = None if searched_us is None else timing.next_after(searched_us)
    if following is None or following > last_us:
        return "every instant in this time was started or skipped by itself: nothing to run"
    return (
        f"every instant before {shown_time(following, timing.zone)} was started or skipped by"
        f" itself, and later ones were not looked at: search on from {to_iso(following)}"
    )


def _backfill_update(
    builder: RunBuilder, connection: Connection, row: TriggerRow, now: int, instants: list[int]
) -> TriggerUpdate:
    spec = decode(row.spec)
    between_us = stagger_us(spec)
    update = TriggerUpdate(row.id, row.version)
    for number, nominal in enumerate(instants):
        context = schedule_context(row, nominal, now, "backfill")
        values = _inputs(builder, connection, row, spec, context)
        update.runs.append(
            Run(
                ((instant_key(nominal), nominal),),
                now + number * between_us,
                values,
                context,
                row.workflow_version,
                is_queued=True,
                reason="backfill",
            )
        )
    return update


def _inputs(
    builder: RunBuilder,
    connection: Connection,
    row: TriggerRow,
    spec: dict[str, Any],
    context: dict[str, Any],
) -> dict[str, Any]:
    try:
        return builder.input_of(connection, row, spec, context)
    except InputsRefusedError as error:
        raise RefusedError(f"its inputs: {error}") from None


def _require_schedule(row: TriggerRow, problem: str) -> None:
    if row.kind != SCHEDULE:
        raise RefusedError(f"it is a watcher, which {problem}")


def _is_known(connection: Connection, row: TriggerRow, nominal: int) -> bool:
    return bool(firing_rows.known_keys(connection, row.id, [instant_key(nominal)]))


def _manual_key(
    connection: Connection, row: TriggerRow, now: int, request_key: str | None
) -> tuple[str, str | None]:
    """Return the key of a run that a person starts, and the task that has it already."""
    if request_key is not None:
        key = f"{MANUAL}{request_key}"
        known = firing_rows.find(connection, row.id, key)
        return key, None if known is None else known["task_id"]
    while firing_rows.known_keys(connection, row.id, [f"{MANUAL}{instant_key(now)}"]):
        now += 1
    return f"{MANUAL}{instant_key(now)}", None
