"""Keeps the stored triggers equal to the definitions of workflows.

Everything that records a workflow as the one in force (the daemon, for files; the API) calls
`sync_workflow` in the same transaction. A task that is started from a file activates no trigger.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from agent.core.clock import SECOND
from agent.core.state_machine import TRIGGER, FiringStatus, TriggerStatus, moved
from agent.store.db.database import Connection
from agent.store.db.json_values import encode
from agent.store.engine import trigger_rows
from agent.store.engine.trigger_rows import TriggerRow
from agent.tasks.rules import row_writer
from agent.tasks.rules.firings import firing
from agent.tasks.rules.firings.trigger_update import TriggerUpdate
from agent.tasks.state.graph_cache import GraphCache
from agent.triggers.schedules.instants import Timing
from agent.triggers.schedules.schedule_plan import mark_all, next_values
from agent.triggers.specs import SCHEDULE, TriggerSpec, triggers_of
from agent.workflows.graph import Graph


@dataclass(slots=True)
class TriggerChanges:
    """The changes of a sync, for the log."""

    added: list[str] = field(default_factory=list)
    edited: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)

    def by_event(self) -> list[tuple[str, list[str]]]:
        """Return the ids by their change."""
        return [("added", self.added), ("edited", self.edited), ("removed", self.removed)]


def sync_workflow(
    tx: Connection, graph: Graph, version: int, directory: str | None, now: int
) -> TriggerChanges:
    """Make the triggers of a workflow equal to its definition, in the caller's transaction."""
    changes = TriggerChanges()
    stored = {row.id: row for row in trigger_rows.of_workflow(tx, graph.name)}
    specs = triggers_of(graph)
    if not stored and not specs:
        return changes
    rows = {row.id: row for row in trigger_rows.lock(tx, sorted(stored), is_waiting=True)}
    new: list[dict[str, Any]] = []
    for spec in specs:
        row = rows.pop(spec.id, None)
        if row is None:
            new.append(_new_row(spec, version, directory, now))
            changes.added.append(spec.id)
        elif _edit(tx, row, spec, version, directory, now):
            changes.edited.append(spec.id)
    if new:
        trigger_rows.insert(tx, new)
    changes.removed = _remove(tx, rows.values(), now)
    return changes


def remove_triggers(tx: Connection, workflow: str, directory: str | None, now: int) -> list[str]:
    """Mark the triggers of a workflow as removed, if this directory defined them."""
    ids = [row.id for row in trigger_rows.of_workflow(tx, workflow) if row.directory == directory]
    return _remove(tx, trigger_rows.lock(tx, sorted(ids), is_waiting=True), now)


def note_problem(tx: Connection, workflow: str, problem: str) -> None:
    """Record the problem of a workflow's file; its triggers keep their last definition."""
    trigger_rows.set_problem(tx, workflow, problem)


def _new_row(spec: TriggerSpec, version: int, directory: str | None, now: int) -> dict[str, Any]:
    row = {
        **_definition(spec, version, directory),
        "id": spec.id,
        "workflow": spec.workflow,
        "name": spec.name,
        "status": TriggerStatus.ACTIVE,
        "version": 1,
        "anchor_at": _anchor(now),
        "polls": 0,
        "failures": 0,
        "created_at": now,
    }
    return row | _first_time(spec, now)


def _definition(spec: TriggerSpec, version: int, directory: str | None) -> dict[str, Any]:
    return {
        "kind": spec.kind,
        "spec": encode(spec.spec, "trigger"),
        "spec_hash": spec.spec_hash,
        "timing_hash": spec.timing_hash,
        "workflow_version": version,
        "directory": directory,
        "problem": None,
    }


def _anchor(now: int) -> int:
    """Return the origin of `every`: a whole second, so that people can read its instants."""
    return now - now % SECOND


def _first_time(spec: TriggerSpec, now: int) -> dict[str, Any]:
    """Return when a new or edited trigger is due first: a schedule later than now, a watcher now."""
    if spec.kind != SCHEDULE:
        return {"next_at": now}
    timing = Timing.of(spec.spec, _anchor(now), spec.id)
    return {**next_values(timing, timing.next_after(now)), "last_nominal": now}


def _edit(
    tx: Connection,
    row: TriggerRow,
    spec: TriggerSpec,
    version: int,
    directory: str | None,
    now: int,
) -> bool:
    """Apply a definition to a stored trigger; return whether anything but the version changed."""
    is_removed = row.status == TriggerStatus.REMOVED
    definition = _definition(spec, version, directory)
    if not is_removed and all(getattr(row, name) == new for name, new in definition.items()):
        return False
    update = TriggerUpdate(row.id, row.version, values=definition)
    if row.timing_hash != spec.timing_hash:
        # Decided under the old definition, in the transaction that replaces it.
        if row.status == TriggerStatus.ACTIVE:
            _settle(update, row, now, FiringStatus.MISSED, "its times were edited")
        elif row.status == TriggerStatus.PAUSED:
            _settle(update, row, now, FiringStatus.SKIPPED, "paused")
        update.values |= _restart(row, spec, now)
    if is_removed:
        _restore(update, row, spec, now)
    elif row.status == TriggerStatus.BROKEN:
        _repair(update, row, spec, now)
    _apply(tx, update, now)
    return row.spec_hash != spec.spec_hash or is_removed


def _settle(
    update: TriggerUpdate, row: TriggerRow, now: int, status: FiringStatus, reason: str
) -> None:
    """Give the instants of a schedule up to now one fate."""
    if row.kind == SCHEDULE:
        mark_all(update, row, now, status, reason)


def _apply(tx: Connection, update: TriggerUpdate, now: int) -> None:
    # An edit may let a queued run start.
    fired = firing.fire(tx, GraphCache(), [update], now, is_waiting=True)
    row_writer.write(tx, fired.tasks, now)


def _restart(row: TriggerRow, spec: TriggerSpec, now: int) -> dict[str, Any]:
    """Return the columns of a trigger whose times or source were edited."""
    values = {"anchor_at": _anchor(now), **_first_time(spec, now)}
    if spec.kind != SCHEDULE:
        values |= {"cursor": None, "polls": 0, "failures": 0, "last_error": None}
        values |= {"next_nominal": None, "last_nominal": None}
    if row.status == TriggerStatus.PAUSED:
        values["next_at"] = row.paused_until
    return values


def _restore(update: TriggerUpdate, row: TriggerRow, spec: TriggerSpec, now: int) -> None:
    """Take a removed trigger into use again, with its cursor and its pause."""
    row = _redefined(row, spec)
    is_paused = row.pause_reason is not None
    event = "trigger.restored_paused" if is_paused else "trigger.restored"
    update.values |= {"status": moved(TRIGGER, event, row.status), "removed_at": None}
    if row.timing_hash == spec.timing_hash:
        if spec.kind == SCHEDULE:
            mark_all(update, row, now, FiringStatus.SKIPPED, "removed")
        else:
            update.values |= {"next_at": now, "skip_items": "removed"}
    if is_paused:
        update.values["next_at"] = row.paused_until


def _redefined(row: TriggerRow, spec: TriggerSpec) -> TriggerRow:
    """Return a row with its new definition: the old one may be one that cannot be read."""
    return replace(row, spec=encode(spec.spec, "trigger"))


def _repair(update: TriggerUpdate, row: TriggerRow, spec: TriggerSpec, now: int) -> None:
    """Take a trigger into use again whose definition could not be read before."""
    row = _redefined(row, spec)
    update.values |= {"status": moved(TRIGGER, "trigger.repaired", row.status)}
    if row.timing_hash == spec.timing_hash:
        if spec.kind == SCHEDULE:
            mark_all(update, row, now, FiringStatus.MISSED, "its definition could not be read")
        else:
            update.values |= {"next_at": now}


def _remove(tx: Connection, rows: Iterable[TriggerRow], now: int) -> list[str]:
    removed = [row for row in rows if row.status != TriggerStatus.REMOVED]
    for row in removed:
        values = {
            "status": moved(TRIGGER, "trigger.removed", row.status),
            "removed_at": now,
            "next_at": None,
        }
        update = TriggerUpdate(row.id, row.version, drop_queued="removed")
        if row.status in (TriggerStatus.ACTIVE, TriggerStatus.PAUSED):
            reason = "paused" if row.status == TriggerStatus.PAUSED else "removed"
            _settle(update, row, now, FiringStatus.SKIPPED, reason)
        update.values |= values
        _apply(tx, update, now)
    return [row.id for row in removed]
