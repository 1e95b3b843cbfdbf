"""Writing units: everything that a transaction changed, one statement a table and shape."""

import json
from collections import defaultdict
from collections.abc import Collection, Iterable
from operator import attrgetter
from typing import Any, Final

from agent.core.ids import content_hash
from agent.core.state_machine import TASK_ENDED, CallStatus, StepStatus
from agent.steps.types.outcome import CallResult, Intent, Reservation
from agent.store.db import json_values
from agent.store.db.database import Connection
from agent.store.engine import approvals, writes
from agent.store.engine.writes import Changes
from agent.tasks.rules import budgets, inherited_calls
from agent.tasks.state import transitions
from agent.tasks.state.locked_task import Unit
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


def write(tx: Connection, units: Collection[Unit], now: int) -> None:
    """Write all units; the tasks' next wake times are derived from their steps here."""
    _insert_new(tx, units)
    steps: list[tuple[str, Changes]] = []
    whole: list[tuple[str, Changes]] = []
    parts: list[tuple[str, int | None, Changes]] = []
    for unit in units:
        if unit.is_new:
            continue
        task = unit.task
        before = len(steps)
        for step in unit.steps.values():
            if not step.is_new:
                changes = step.changes()
                if changes is not None:
                    steps.append((step.id, changes))
        if unit.is_complete:
            task.next_wake_time = _next_wake_time(unit)
        changes = task.changes()
        if changes is not None and unit.is_complete:
            whole.append((task.id, changes))
        elif (
            changes is not None
            # A step's change shows in its task's row, always: by that others notice it.
            or len(steps) > before
            or (unit.is_touched and not unit.is_complete)
        ):
            parts.append((task.id, task.deadline, changes or ((), [])))
        else:
            continue
        unit.is_written = True
    if steps:
        writes.update_steps(tx, steps)
    if whole:
        writes.update_whole_tasks(tx, whole)
    if parts:
        writes.update_tasks(tx, now, parts)
    events = [event for unit in units for event in unit.events]
    if events:
        writes.insert_events(tx, events)
    _insert_calls(tx, units)
    questions = [row for unit in units for row in unit.questions]
    if questions:
        approvals.insert(tx, questions)
    # After the insertion: what is asked and taken back in one transaction is withdrawn.
    withdrawn = [approval for unit in units for approval in unit.withdrawals]
    if withdrawn:
        approvals.withdraw(tx, withdrawn, now)


def _insert_new(tx: Connection, units: Iterable[Unit]) -> None:
    tasks: defaultdict[tuple[str, ...], list[list[Any]]] = defaultdict(list)
    steps: defaultdict[tuple[str, ...], list[list[Any]]] = defaultdict(list)
    heirs: list[tuple[Unit, Unit]] = []
    for unit in units:
        new_steps = [step for step in unit.steps.values() if step.is_new]
        if unit.is_new:
            task = unit.task
            task.next_wake_time = _next_wake_time(unit)
            names = (*TASK_COLUMNS, *task.extra)
            tasks[names].append([*TaskRow.values(task), *task.extra.values()])
            unit.is_written = True
            if unit.retries is not None:
                heirs.append((unit, unit.retries))
        for step in new_steps:
            definition = unit.definition(step)
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


def _next_wake_time(unit: Unit) -> int | None:
    """Return when to look at a task whose open steps are all in memory."""
    # Never in the past: a task that was served goes behind those that wait.
    now = unit.now
    wakes = [step.wake_at for step in unit.steps.values() if step.wake_at is not None]
    if unit.shelf:
        wakes += [step.wake_at for step in unit.shelf.values() if step.wake_at is not None]
    if wakes:
        wakes = [max(min(wakes), now)]
    if unit.task.deadline is not None:
        wakes.append(unit.task.deadline)
    return min(wakes, default=None)


def _insert_calls(tx: Connection, units: Iterable[Unit]) -> None:
    calls = []
    for unit in units:
        calls += [_call(unit, *intent) for intent in unit.intents]
        unit.intents.clear()
    if calls:
        writes.insert_calls(tx, calls)


def _call(unit: Unit, step_id: str, attempt: int, intent: Intent) -> list[Any]:
    return [
        intent.call_id,
        unit.task.id,
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
        unit.now,
        *_model_values(intent.reservation),
    ]


def _model_values(asked: Reservation | None) -> tuple[Any, ...]:
    if asked is None:
        return ()
    return (asked.model, asked.prompt_hash, asked.tokens, asked.microusd, asked.ms)


def resolve(tx: Connection, units: Iterable[Unit]) -> None:
    """Resolve in the ledger what became of calls, and tell of each that was unknown until now.

    A step that waits on that very unknown is woken: it may be a late word about an attempt of
    which nobody knew more.
    """
    told: list[tuple[Unit, CallResult]] = [
        (unit, result) for unit in units for result in unit.results
    ]
    if not told:
        return
    # An attempt that gave up while its intent waited for a turn sends both in one.
    _insert_calls(tx, [unit for unit, _ in told])
    outcomes: list[list[Any]] = []
    calls: dict[str, list[Any]] = {}
    for unit, result in told:
        response, error = response_text(result), None
        if result.error is not None:
            error = json.dumps(result.error.document(0), ensure_ascii=False)
        digest = content_hash(response) if response is not None else None
        outcomes.append([result.idempotency_key, result.status, digest, unit.now])
        calls[result.idempotency_key] = [result.call_id, response, error, result.latency_ms]
    resolved = writes.resolve_calls(tx, outcomes, calls)
    _settle_models(tx, told, resolved)
    for unit, result in told:
        if result.idempotency_key in resolved:
            event = f"tool_call.{result.status}"
            if result.is_resolved_by_check:
                event = "tool_call.resolved"
            unit.tell(
                event, None, {"call": result.call_id, "status": result.status, **_used(result)}
            )
            if unit.task.status in TASK_ENDED:
                continue
            for step in unit.steps.values():
                if step.status == StepStatus.WAITING and waits_on_call(step, result.call_id):
                    transitions.withdraw(unit, step, "the outcome is known now")
                    transitions.wake(unit, step)


def _settle_models(tx: Connection, told: list[tuple[Unit, CallResult]], resolved: set[str]) -> None:
    """Write what calls of models used, in their rows and in the budgets that they count for."""
    settled = [
        (unit, result)
        for unit, result in told
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
    on = json.loads(step.waiting_on) if step.waiting_on else {}
    return bool(on.get("unknown") == call_id)


def response_text(result: CallResult) -> str | None:
    """Write a response as it is stored; one that cannot be stored is replaced by the reason."""
    if result.status is not CallStatus.SUCCEEDED:
        return None
    try:
        return json_values.encode(result.response, "response")
    except json_values.NotPlainJsonError as error:
        return json.dumps({"not_kept": str(error)})
