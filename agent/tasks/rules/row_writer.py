"""Writing units: everything that a transaction changed, one statement a table and shape."""

import json
from collections import defaultdict
from collections.abc import Collection, Iterable
from operator import attrgetter
from typing import Any, Final

from agent.core.ids import content_hash
from agent.core.state_machine import TASK_ENDED, CallStatus, StepStatus
from agent.core.waits import UnknownCall
from agent.steps.types.call_records import CallResult, Intent, Reservation
from agent.store.db import json_values
from agent.store.db.database import Connection
from agent.store.engine import approvals, writes
from agent.store.engine.writes import Changes
from agent.tasks.rules import budgets, inherited_calls
from agent.tasks.state import transitions
from agent.tasks.state.locked_task import LockedTask
from agent.tasks.state.rows import STEP_COLUMNS, TASK_COLUMNS, StepRow, TaskRow

_FRESH: Final = (
    "id",
    "task_id",
    "index",
    "status",
    "max_attempts",
    "deps_remaining",
    "wake_at",
    "held",
    "placed",
    "owner",
    "claim_token",
    "claim_turn",
    "started_at",
)
_FRESH_VALUES: Final = attrgetter(*_FRESH)
_FRESH_COLUMNS: Final = (*_FRESH, "name", "kind")
"""What a step of a new task has of its own; everything else is as for any other."""
_ITEM: Final = (*_FRESH, "parallel_index", "parallel_count")
_ITEM_VALUES: Final = attrgetter(*_ITEM)
_ITEM_COLUMNS: Final = (*_ITEM, "name", "kind", "item")


def write(tx: Connection, locked_tasks: Collection[LockedTask], now: int) -> None:
    """Write all units; the tasks' next wake times are derived from their steps here."""
    _insert_new(tx, locked_tasks)
    steps: list[tuple[str, Changes]] = []
    whole: list[tuple[str, Changes]] = []
    parts: list[tuple[str, int | None, Changes]] = []
    for locked in locked_tasks:
        if locked.is_new:
            continue
        task = locked.task
        before = len(steps)
        for step in locked.steps.values():
            if not step.is_new:
                changes = step.changes()
                if changes is not None:
                    steps.append((step.id, changes))
        if locked.is_complete:
            task.next_wake_time = _next_wake_time(locked)
        changes = task.changes()
        if changes is not None and locked.is_complete:
            whole.append((task.id, changes))
        elif (
            changes is not None
            # A step's change shows in its task's row, always: by that others notice it.
            or len(steps) > before
            or (locked.is_touched and not locked.is_complete)
        ):
            parts.append((task.id, task.deadline, changes or ((), [])))
        else:
            continue
        locked.is_written = True
    if steps:
        writes.update_steps(tx, steps)
    if whole:
        writes.update_whole_tasks(tx, whole)
    if parts:
        writes.update_tasks(tx, now, parts)
    events = [event for locked in locked_tasks for event in locked.events]
    if events:
        writes.insert_events(tx, events)
    _insert_calls(tx, locked_tasks)
    questions = [row for locked in locked_tasks for row in locked.questions]
    if questions:
        approvals.insert(tx, questions)
    # After the insertion: what is asked and taken back in one transaction is withdrawn.
    withdrawn = [approval for locked in locked_tasks for approval in locked.withdrawals]
    if withdrawn:
        approvals.withdraw(tx, withdrawn, now)


def _insert_new(tx: Connection, locked_tasks: Iterable[LockedTask]) -> None:
    tasks: defaultdict[tuple[str, ...], list[list[Any]]] = defaultdict(list)
    steps: defaultdict[tuple[str, ...], list[list[Any]]] = defaultdict(list)
    heirs: list[tuple[LockedTask, LockedTask]] = []
    for locked in locked_tasks:
        new_steps = [step for step in locked.steps.values() if step.is_new]
        if locked.is_new:
            task = locked.task
            task.next_wake_time = _next_wake_time(locked)
            names = (*TASK_COLUMNS, *task.extra)
            tasks[names].append([*TaskRow.values(task), *task.extra.values()])
            locked.is_written = True
            if locked.retries is not None:
                heirs.append((locked, locked.retries))
        for step in new_steps:
            definition = locked.definition(step)
            named = definition.name, definition.kind
            if not step.extra:
                steps[_FRESH_COLUMNS].append([*_FRESH_VALUES(step), *named])
            elif step.is_item and step.status != StepStatus.SUCCEEDED and len(step.extra) == 1:
                steps[_ITEM_COLUMNS].append([*_ITEM_VALUES(step), *named, step.extra.get("item")])
            else:
                names = (*STEP_COLUMNS, "name", "kind", *step.extra)
                steps[names].append([*StepRow.values(step), *named, *step.extra.values()])
    for names, rows in tasks.items():
        writes.insert_tasks(tx, rows, names)
    for names, rows in steps.items():
        writes.insert_steps(tx, rows, names)
    for heir, old in heirs:
        inherited_calls.inherit_calls(tx, old, heir)


def _next_wake_time(locked: LockedTask) -> int | None:
    """Return when to look at a task whose open steps are all in memory."""
    # Never in the past: a task that was served goes behind those that wait.
    now = locked.now
    wakes = [step.wake_at for step in locked.steps.values() if step.wake_at is not None]
    if locked.shelf:
        wakes += [step.wake_at for step in locked.shelf.values() if step.wake_at is not None]
    if wakes:
        wakes = [max(min(wakes), now)]
    if locked.task.deadline is not None:
        wakes.append(locked.task.deadline)
    return min(wakes, default=None)


def _insert_calls(tx: Connection, locked_tasks: Iterable[LockedTask]) -> None:
    calls = []
    for locked in locked_tasks:
        calls += [_call(locked, *intent) for intent in locked.intents]
        locked.intents.clear()
    if calls:
        writes.insert_calls(tx, calls)


def _call(locked: LockedTask, step_id: str, attempt: int, intent: Intent) -> list[Any]:
    return [
        intent.call_id,
        locked.task.id,
        step_id,
        intent.number,
        attempt,
        intent.action,
        intent.idempotency_key,
        intent.remote_key,
        intent.request_hash,
        json_values.encode(intent.request, "request"),
        None,
        None,
        intent.on_unknown,
        intent.send_by,
        intent.expires_at,
        locked.now,
        *_model_values(intent.reservation),
    ]


def _model_values(asked: Reservation | None) -> tuple[Any, ...]:
    if asked is None:
        return ()
    return (asked.model, asked.prompt_hash, asked.tokens, asked.microusd, asked.ms)


def resolve(tx: Connection, locked_tasks: Iterable[LockedTask]) -> None:
    """Resolve in the ledger what became of calls, and tell of each that was unknown until now.

    A step that waits on that very unknown is woken: it may be a late word about an attempt of
    which nobody knew more.
    """
    told: list[tuple[LockedTask, CallResult]] = [
        (locked, result) for locked in locked_tasks for result in locked.results
    ]
    if not told:
        return
    # An attempt that gave up while its intent waited for a turn sends both in one.
    _insert_calls(tx, [locked for locked, _ in told])
    outcomes: list[list[Any]] = []
    calls: dict[str, list[Any]] = {}
    for locked, result in told:
        response, error = response_text(result), None
        if result.error is not None:
            error = json.dumps(result.error.document(0), ensure_ascii=False)
        digest = content_hash(response) if response is not None else None
        outcomes.append([result.idempotency_key, result.status, digest, locked.now])
        calls[result.idempotency_key] = [result.call_id, response, error, result.latency_ms]
    resolved = writes.resolve_calls(tx, outcomes, calls)
    _settle_models(tx, told, resolved)
    for locked, result in told:
        if result.idempotency_key in resolved:
            event = f"tool_call.{result.status}"
            if result.is_resolved_by_check:
                event = "tool_call.resolved"
            locked.emit(
                event, None, {"call": result.call_id, "status": result.status, **_used(result)}
            )
            if locked.task.status in TASK_ENDED:
                continue
            for step in locked.steps.values():
                if step.status == StepStatus.WAITING and waits_on_call(step, result.call_id):
                    transitions.withdraw(locked, step, "the outcome is known now")
                    transitions.wake(locked, step)


def _settle_models(
    tx: Connection, told: list[tuple[LockedTask, CallResult]], resolved: set[str]
) -> None:
    """Write what calls of models used, in their rows and in the budgets that they count for."""
    settled = [
        (locked, result)
        for locked, result in told
        if result.reservation is not None and result.idempotency_key in resolved
    ]
    if not settled:
        return
    rows = [
        [
            result.call_id,
            spend.tokens_in,
            spend.tokens_out,
            spend.microusd,
            spend.request_id,
            spend.stop_reason,
        ]
        for _, result in settled
        if (spend := result.spend) is not None
    ]
    if rows:
        writes.record_spend(tx, rows)
    budgets.settle(tx, settled)


def _used(result: CallResult) -> dict[str, Any]:
    spend = result.spend
    if spend is None:
        return {}
    return {
        "tokens_in": spend.tokens_in,
        "tokens_out": spend.tokens_out,
        "microusd": spend.microusd,
    }


def waits_on_call(step: StepRow, call_id: str) -> bool:
    """Whether a step waits for somebody to say what became of a call."""
    on = step.wait
    return isinstance(on, UnknownCall) and on.call_id == call_id


def response_text(result: CallResult) -> str | None:
    """Write a response as it is stored; one that cannot be stored is replaced by the reason."""
    if result.status is not CallStatus.SUCCEEDED:
        return None
    try:
        return json_values.encode(result.response, "response")
    except json_values.NotPlainJsonError as error:
        return json.dumps({"not_kept": str(error)})
