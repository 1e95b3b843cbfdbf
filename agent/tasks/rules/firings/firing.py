"""Firings: a due instant or a new item becomes a recorded fate and, where it starts, a task.

`fire` applies plans (`trigger_update`) under the locks of their triggers: the firings, their tasks, the
cursor and the next time change in one transaction, or nothing does. A plan for another version of the
trigger is *stale* and changes nothing. The overlap, which depends on other tasks, is decided under the
locks too (`trigger_firing`).

In the daemon this is a part of the worker's commit; elsewhere `Operator.fire` runs it in a transaction
of its own.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from agent.store.db.database import Connection
from agent.store.engine import firing_rows, trigger_rows, writes
from agent.store.engine.trigger_rows import TriggerRow
from agent.tasks.rules.firings.trigger_firing import QueuedRun, TriggerFiring
from agent.tasks.rules.firings.trigger_update import FireResult, FireResults, TriggerUpdate
from agent.tasks.state.graph_cache import GraphCache


def fire(
    tx: Connection,
    graphs: GraphCache,
    updates: Sequence[TriggerUpdate],
    now: int,
    *,
    is_waiting: bool = False,
) -> FireResults:
    """Apply plans to the triggers that can be locked; the caller writes the new tasks."""
    results = FireResults()
    firsts: dict[str, TriggerUpdate] = {}
    for update in updates:
        if update.trigger_id in firsts:
            results.carried.append(update)
        else:
            firsts[update.trigger_id] = update
    rows = {row.id: row for row in trigger_rows.lock(tx, sorted(firsts), is_waiting=is_waiting)}
    missing = sorted(firsts.keys() - rows.keys())
    known = trigger_rows.existing(tx, missing) if missing else set()
    current: list[TriggerUpdate] = []
    for trigger_id, update in firsts.items():
        row = rows.get(trigger_id)
        if row is None and trigger_id in known:
            results.carried.append(update)
        elif row is None:
            results.done.append((update, FireResult("gone")))
        elif update.version is not None and update.version != row.version:
            results.done.append((update, FireResult("stale")))
        else:
            current.append(update)
    if current:
        _apply(tx, graphs, [(rows[plan.trigger_id], plan) for plan in current], now, results)
    return results


def _apply(
    tx: Connection,
    graphs: GraphCache,
    plans: list[tuple[TriggerRow, TriggerUpdate]],
    now: int,
    results: FireResults,
) -> None:
    ids = [row.id for row, _ in plans]
    open_tasks: dict[str, list[tuple[str, bool]]] = {}
    # In a later statement than the lock: else the end of a task that released it would be missed.
    for trigger_id, task_id, only_waits in trigger_rows.open_tasks(tx, ids):
        open_tasks.setdefault(trigger_id, []).append((task_id, bool(only_waits)))
    queues = _queues(firing_rows.queued(tx, ids))
    # Keys of a trigger are taken under its lock: a run without one must not count for the overlap.
    taken = firing_rows.taken_keys(tx, _planned_keys(plans))
    firings = [
        TriggerFiring(
            tx, graphs, row, update, now, open_tasks.get(row.id, []), queues.get(row.id, [])
        )
        for row, update in plans
    ]
    for firing in firings:
        firing.decide({key for trigger_id, key in taken if trigger_id == firing.row.id})
    new = [row for firing in firings for row in firing.new_rows]
    inserted = firing_rows.insert(tx, new) if new else set()
    settled = [row for firing in firings for row in firing.settled]
    if settled:
        firing_rows.settle_queued(tx, settled)
    for firing in firings:
        results.tasks += firing.create_tasks(inserted)
        results.done.append((firing.update, firing.result))
        results.events += firing.events
        if firing.update.seen:
            firing_rows.mark_seen(tx, firing.row.id, firing.update.seen, now)
        if firing.update.seen_since is not None:
            firing_rows.mark_unchanged(tx, firing.row.id, firing.update.seen_since, now)
    trigger_rows.update(
        tx, [(applied.row.id, applied.changes) for applied in firings if applied.changes]
    )
    if results.events:
        writes.insert_events(tx, results.events)


def _planned_keys(plans: list[tuple[TriggerRow, TriggerUpdate]]) -> list[tuple[str, str]]:
    return [(row.id, key) for row, update in plans for run in update.runs for key, _ in run.keys]


def _queues(rows: Iterable[dict[str, Any]]) -> dict[str, list[QueuedRun]]:
    """Return the queued runs of each trigger; the rows of one batch are one run."""
    queues: dict[str, dict[str, QueuedRun]] = {}
    for row in rows:
        runs = queues.setdefault(row["trigger_id"], {})
        run = runs.get(row["run_id"])
        if run is None:
            run = runs[row["run_id"]] = QueuedRun(
                row["run_id"],
                [],
                row["due_at"],
                row["nominal_at"],
                row["input"] or "{}",
                row["context"] or "{}",
                row["workflow_version"],
                row["recorded_at"],
            )
        run.keys.append(row["key"])
        if row["input"] is not None:
            run.input, run.context = row["input"], row["context"]
    return {trigger_id: list(runs.values()) for trigger_id, runs in queues.items()}
