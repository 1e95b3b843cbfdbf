"""The operator's commands on triggers: pause, resume, run, skip, backfill, reset.

Each is one transaction under the trigger's lock, planned from the row at one version; a plan that a
pass of the daemon has made stale is made again. A removed trigger refuses every command.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import tzinfo
from typing import Any, Final

from agent.core.clock import SECOND, Clock, to_iso
from agent.core.state_machine import TRIGGER, FiringStatus, TriggerStatus, moved
from agent.store.db.database import Connection, Database
from agent.store.db.json_values import decode
from agent.store.engine import trigger_rows
from agent.store.engine.trigger_rows import TriggerRow
from agent.tasks.errors import NotFoundError, RefusedError
from agent.tasks.operator.operator import Operator
from agent.tasks.rules.trigger_update import FireResult, Mark, Run, TriggerUpdate
from agent.tasks.state.graph_cache import GraphCache
from agent.triggers import backfill as backfills
from agent.triggers.documents import find_trigger, zone_of
from agent.triggers.instants import Timing
from agent.triggers.local_time import shown_time
from agent.triggers.run_builder import (
    InputsRefusedError,
    RunBuilder,
    instant_key,
    schedule_context,
)
from agent.triggers.schedule_plan import SchedulePlanner, find_due, next_values, timing_of
from agent.triggers.specs import SCHEDULE, WATCH

BY_OPERATOR: Final = "by the operator"
MANUAL: Final = "manual/"
"""What the keys of runs begin with that a person started: none of them is an instant."""
_ATTEMPTS: Final = 10


@dataclass(frozen=True, slots=True)
class TriggerResult:
    """What a command did, for a person and for a program."""

    is_changed: bool
    message: str
    trigger_id: str
    tasks: list[str] = field(default_factory=list)
    instants: list[str] = field(default_factory=list)
    """The instants that it skipped, backfilled or would backfill, in UTC."""


@dataclass(slots=True)
class _Plan:
    """A planned command: the change, if there is one, and what to say about it."""

    update: TriggerUpdate | None
    message: str
    instants: list[int] = field(default_factory=list)
    tasks: list[str] = field(default_factory=list)
    is_run: bool = False


_Planner = Callable[[Connection, TriggerRow, int], _Plan]


class TriggerCommands:
    """Commands on the triggers of one database."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._operator = Operator(database, clock)
        self._builder = RunBuilder(GraphCache())

    def find(self, text: str, kind: str | None = None) -> TriggerRow:
        """Return the trigger of an id, of a unique name, or the only one of a workflow."""
        with self._database.connect("reader") as connection:
            rows = {row.id: row for row in trigger_rows.all_rows(connection)}
        candidates = [
            {name: getattr(row, name) for name in ("id", "workflow", "name", "kind", "status")}
            for row in rows.values()
        ]
        return rows[find_trigger(candidates, text, kind)]

    def zone(self, trigger_id: str) -> tzinfo:
        """Return the time zone of a trigger: times without an offset are read in it."""
        with self._database.connect("reader") as connection:
            return zone_of(self._row(connection, trigger_id))

    def pause(
        self, trigger_id: str, until_us: int | None = None, reason: str | None = None
    ) -> TriggerResult:
        """Start nothing by itself, until a time or until it is resumed; queued runs stay queued."""

        def plan(_connection: Connection, row: TriggerRow, now: int) -> _Plan:
            if row.status == TriggerStatus.BROKEN:
                raise RefusedError(f"it is broken and starts nothing: {row.problem}")
            if until_us is not None and until_us <= now:
                raise RefusedError(f"{shown_time(until_us, zone_of(row))} is not in the future")
            values: dict[str, Any] = {
                "pause_reason": reason or BY_OPERATOR,
                "paused_until": until_us,
                "next_at": until_us,
            }
            if row.status == TriggerStatus.PAUSED:
                if all(getattr(row, name) == value for name, value in values.items()):
                    return _Plan(None, "already paused")
            else:
                values["status"] = moved(TRIGGER, "trigger.paused", row.status)
            until = "" if until_us is None else f" until {shown_time(until_us, zone_of(row))}"
            return _Plan(_update(row, values), f"paused{until}")

        return self._apply(trigger_id, plan)

    def resume(self, trigger_id: str, *, catch_up: bool = False) -> TriggerResult:
        """End a pause. What came meanwhile is skipped, unless it is to be caught up."""

        def plan(connection: Connection, row: TriggerRow, now: int) -> _Plan:
            if row.status == TriggerStatus.ACTIVE:
                return _Plan(None, "it is active already")
            if row.status == TriggerStatus.BROKEN:
                return self._repaired(row, now)
            if row.kind == SCHEDULE:
                return self._resumed_schedule(connection, row, now, catch_up=catch_up)
            values = {"next_at": now, "skip_items": None if catch_up else "paused"}
            rest = "start tasks" if catch_up else "are skipped"
            message = f"resumed; items that came meanwhile {rest}"
            return _Plan(_update(row, _resumption(row, now) | values), message)

        return self._apply(trigger_id, plan)

    def run(self, trigger_id: str, *, request_key: str | None = None) -> TriggerResult:
        """Start a task of a schedule now, or let a watcher poll now.

        Overlap does not hold for it: a person asked. A repeated request key starts nothing again.
        """

        def plan(connection: Connection, row: TriggerRow, now: int) -> _Plan:
            if row.kind == WATCH:
                if row.status != TriggerStatus.ACTIVE:
                    raise RefusedError(
                        f"it is {row.status}: resume it first; it then polls at once"
                    )
                return _Plan(_update(row, {"next_at": now}), "it polls now")
            key, started = _manual_key(connection, row, now, request_key)
            if started is not None:
                return _Plan(None, f"already started as {started}", tasks=[started])
            spec = decode(row.spec)
            context = schedule_context(row, now, now, "manual")
            values = self._inputs(connection, row, spec, context)
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
            return _Plan(update, "not started: its firings say why", is_run=True)

        return self._apply(trigger_id, plan)

    def skip(self, trigger_id: str) -> TriggerResult:
        """Let the next instant of a schedule pass: its row says so, and the one after it is next."""

        def plan(connection: Connection, row: TriggerRow, now: int) -> _Plan:
            _require_schedule(row, "has no instants to skip; pause it instead")
            if row.status != TriggerStatus.ACTIVE:
                raise RefusedError(f"it is {row.status}: no instant of it starts a task")
            timing = _timing(row)
            due = find_due(row, timing, now, 1)
            nominal = due.next_nominal
            while nominal is not None and _is_known(connection, row, nominal):
                nominal = timing.next_after(nominal)
            if nominal is None:
                raise RefusedError("it has no further instant")
            following = timing.next_after(nominal)
            mark = Mark(instant_key(nominal), FiringStatus.SKIPPED, BY_OPERATOR, nominal)
            update = TriggerUpdate(row.id, row.version, marks=[mark])
            if due.last is None:
                # Else instants before it still need their fates: its row alone blocks this one.
                update.values = {**next_values(timing, following), "last_nominal": nominal}
            rest = "; it has no further instant"
            if following is not None:
                rest = f"; next is {shown_time(following, timing.zone)}"
            return _Plan(update, f"skipped {shown_time(nominal, timing.zone)}{rest}", [nominal])

        return self._apply(trigger_id, plan)

    def backfill(
        self,
        trigger_id: str,
        from_us: int,
        to_us: int,
        *,
        most: int | None = None,
        dry_run: bool = False,
    ) -> TriggerResult:
        """Queue runs for instants of the past that have no fate of their own, the oldest first."""
        most = backfills.MOST if most is None else most
        if not 1 <= most <= backfills.MOST_EVER:
            raise RefusedError(f"a backfill runs 1 to {backfills.MOST_EVER:,} instants at once")
        if from_us > to_us:
            raise RefusedError("the first instant must not be later than the last one")

        def plan(connection: Connection, row: TriggerRow, now: int) -> _Plan:
            _require_schedule(row, "has no instants to backfill")
            if from_us > now:
                raise RefusedError("a backfill runs instants of the past")
            span = (from_us, min(to_us, now))
            found = backfills.find_backfill(connection, _timing(row), row.id, span, most)
            number = _counted(len(found.instants), "run")
            if not found.instants:
                return _Plan(
                    None,
                    "every instant in this time was started or skipped by itself: nothing to run",
                )
            if dry_run:
                return _Plan(None, f"would queue {number}{found.remark}", found.instants)
            update = self._backfill_update(connection, row, now, found.instants)
            waits = "; they start when it is resumed" if row.status == "paused" else ""
            return _Plan(update, f"queued {number}{found.remark}{waits}", found.instants)

        return self._apply(trigger_id, plan)

    def reset(self, trigger_id: str) -> TriggerResult:
        """Let a watcher start from nothing: its next poll is a first one. Known items stay known."""

        def plan(_connection: Connection, row: TriggerRow, now: int) -> _Plan:
            if row.kind != WATCH:
                raise RefusedError("it is a schedule, and only a watcher has a cursor to reset")
            values: dict[str, Any] = {"cursor": None, "polls": 0}
            if row.status == TriggerStatus.ACTIVE:
                values["next_at"] = now
            first = decode(row.spec).get("first", "baseline")
            return _Plan(_update(row, values), f"reset; its next poll is a first one ({first})")

        return self._apply(trigger_id, plan)

    def _apply(self, trigger_id: str, plan: _Planner) -> TriggerResult:
        """Plan a command and apply it; plan again if the trigger has changed meanwhile."""
        for _ in range(_ATTEMPTS):
            with self._database.connect("reader") as connection:
                row = self._row(connection, trigger_id)
                if row.status == TriggerStatus.REMOVED:
                    raise RefusedError(
                        f"{trigger_id} was removed from its workflow {row.workflow!r}:"
                        " it starts nothing any more"
                    )
                planned = plan(connection, row, self._clock.now())
            if planned.update is None:
                return _result(trigger_id, planned, None)
            fired = self._operator.fire(planned.update)
            if fired.status == "applied":
                return _result(trigger_id, planned, fired)
        raise RefusedError(f"{trigger_id} keeps changing at the moment: try again")

    @staticmethod
    def _row(connection: Connection, trigger_id: str) -> TriggerRow:
        row = trigger_rows.find(connection, trigger_id)
        if row is None:
            raise NotFoundError(f"there is no trigger {trigger_id}")
        return row

    def _repaired(self, row: TriggerRow, now: int) -> _Plan:
        """Take a broken trigger into use again, if its definition can be read now."""
        values: dict[str, Any] = {
            "status": moved(TRIGGER, "trigger.repaired", row.status),
            "problem": None,
            "resumed_at": now,
        }
        if row.kind == WATCH:
            return _Plan(_update(row, values | {"next_at": now}), "in use again")
        timing = _timing(row)
        # The pass of the daemon then gives the instants since the last one their fates.
        first = timing.next_after(now if row.last_nominal is None else row.last_nominal)
        return _Plan(_update(row, values | next_values(timing, first)), "in use again")

    def _resumed_schedule(
        self, connection: Connection, row: TriggerRow, now: int, *, catch_up: bool
    ) -> _Plan:
        if not catch_up:
            # What the daemon does when the time of a pause is over.
            update = SchedulePlanner(connection, self._builder, row, now).plan()
            skipped = sum(mark.count or 1 for mark in update.marks)
            rest = f"; {_counted(skipped, 'instant')} of the pause skipped" if skipped else ""
            return _Plan(update, f"resumed{rest}")
        timing = _timing(row)
        base = now if row.last_nominal is None else row.last_nominal
        nominal = timing.next_after(base)
        values = _resumption(row, now) | next_values(timing, nominal)
        policy = decode(row.spec).get("catch_up", "latest")
        missed = find_due(row, timing, now, 1)
        count = missed.missed_count + (missed.on_time is not None)
        rest = f"; {_counted(count, 'instant')} to catch up (catch_up: {policy})" if count else ""
        return _Plan(_update(row, values), f"resumed{rest}")

    def _backfill_update(
        self, connection: Connection, row: TriggerRow, now: int, instants: list[int]
    ) -> TriggerUpdate:
        spec = decode(row.spec)
        stagger_us = int(spec.get("stagger_seconds", 10.0) * SECOND)
        update = TriggerUpdate(row.id, row.version)
        for number, nominal in enumerate(instants):
            context = schedule_context(row, nominal, now, "backfill")
            values = self._inputs(connection, row, spec, context)
            update.runs.append(
                Run(
                    ((instant_key(nominal), nominal),),
                    now + number * stagger_us,
                    values,
                    context,
                    row.workflow_version,
                    is_queued=True,
                    reason="backfill",
                )
            )
        return update

    def _inputs(
        self,
        connection: Connection,
        row: TriggerRow,
        spec: dict[str, Any],
        context: dict[str, Any],
    ) -> dict[str, Any]:
        try:
            return self._builder.input_of(connection, row, spec, context)
        except InputsRefusedError as error:
            raise RefusedError(f"its inputs: {error}") from None


def _update(row: TriggerRow, values: dict[str, Any]) -> TriggerUpdate:
    return TriggerUpdate(row.id, row.version, values=values)


def _resumption(row: TriggerRow, now: int) -> dict[str, Any]:
    return {
        "status": moved(TRIGGER, "trigger.resumed", row.status),
        "pause_reason": None,
        "paused_until": None,
        "resumed_at": now,
    }


def _timing(row: TriggerRow) -> Timing:
    try:
        return timing_of(row)
    except Exception as error:
        raise RefusedError(f"it cannot be read: {type(error).__name__}: {error}") from error


def _require_schedule(row: TriggerRow, problem: str) -> None:
    if row.kind != SCHEDULE:
        raise RefusedError(f"it is a watcher, which {problem}")


def _is_known(connection: Connection, row: TriggerRow, nominal: int) -> bool:
    return bool(trigger_rows.known_keys(connection, row.id, [instant_key(nominal)]))


def _manual_key(
    connection: Connection, row: TriggerRow, now: int, request_key: str | None
) -> tuple[str, str | None]:
    """Return the key of a run that a person starts, and the task that has it already."""
    if request_key is not None:
        key = f"{MANUAL}{request_key}"
        known = trigger_rows.firing(connection, row.id, key)
        return key, None if known is None else known["task_id"]
    while trigger_rows.known_keys(connection, row.id, [f"{MANUAL}{instant_key(now)}"]):
        now += 1
    return f"{MANUAL}{instant_key(now)}", None


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def _result(trigger_id: str, plan: _Plan, fired: FireResult | None) -> TriggerResult:
    tasks = plan.tasks if fired is None else sorted(set(fired.started.values()))
    message = plan.message
    if fired is not None and plan.is_run and tasks:
        message = f"started as {tasks[0]}"
    instants = [to_iso(instant) or "" for instant in plan.instants]
    return TriggerResult(fired is not None, message, trigger_id, tasks, instants)
