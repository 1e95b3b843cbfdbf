"""The ledger of calls: intents before an effect, results after it.

A call is inserted as unknown with its intent. Its first result resolves it; later results change
nothing. A result is recorded even if its attempt lost the claim: the effect did happen.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

from agent.core.ids import content_hash
from agent.core.plain_json import Json
from agent.core.state_machine import TASK_ENDED, CallStatus, StepStatus
from agent.core.waits import UnknownCall
from agent.steps.types.call_records import CallResult, Intent, Reservation
from agent.store.db import json_values
from agent.store.db.database import Connection
from agent.store.engine import call_rows
from agent.tasks.rules import budget_reservations
from agent.tasks.state import transitions
from agent.tasks.state.locked_task import LockedTask
from agent.tasks.state.rows import StepRow

_MAY_HAVE_CALLS: Final = (StepStatus.RUNNING, StepStatus.WAITING)


def insert_intents(tx: Connection, locked_tasks: Iterable[LockedTask]) -> None:
    """Record the calls that attempts are about to make."""
    calls = []
    for locked in locked_tasks:
        calls += [_call_values(locked, *intent) for intent in locked.intents]
        locked.intents.clear()
    if calls:
        call_rows.insert_calls(tx, calls)


def _call_values(locked: LockedTask, step_id: str, attempt: int, intent: Intent) -> list[Any]:
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


def _model_values(reservation: Reservation | None) -> tuple[Any, ...]:
    if reservation is None:
        return ()
    return (
        reservation.model,
        reservation.prompt_hash,
        reservation.tokens,
        reservation.microusd,
        reservation.ms,
    )


def resolve(tx: Connection, locked_tasks: Iterable[LockedTask]) -> None:
    """Record the results of calls, and wake the steps that waited for them."""
    first: dict[str, tuple[LockedTask, CallResult]] = {}
    for locked in locked_tasks:
        for result in locked.results:
            first.setdefault(result.idempotency_key, (locked, result))
    results = list(first.values())
    if not results:
        return
    # An attempt that gave up before its intent was committed sends both in one transaction.
    insert_intents(tx, [locked for locked, _ in results])
    outcomes: list[list[Any]] = []
    calls: dict[str, list[Any]] = {}
    for locked, result in results:
        response, error = response_text(result), None
        if result.error is not None:
            error = json.dumps(result.error.document(0), ensure_ascii=False)
        digest = content_hash(response) if response is not None else None
        outcomes.append([result.idempotency_key, result.status, digest, locked.now])
        calls[result.idempotency_key] = [result.call_id, response, error, result.latency_ms]
    resolved_keys = call_rows.resolve_calls(tx, outcomes, calls)
    resolved = [
        (locked, result) for locked, result in results if result.idempotency_key in resolved_keys
    ]
    _record_spend(tx, resolved)
    for locked, result in resolved:
        _emit_result(locked, result)
        if locked.task.status not in TASK_ENDED:
            _wake_waiting(locked, result.call_id)


def report_unknown(tx: Connection, locked: LockedTask, steps: Sequence[StepRow]) -> list[str]:
    """Emit which calls of these steps have no result, where their task is canceled; return the steps' names.

    Calls that are safe to repeat are left out: what they did does not matter.
    """
    # A step that waits on an unknown call was reported when its result got lost.
    open_steps = {step.id: step for step in steps if step.status in _MAY_HAVE_CALLS}
    names = []
    for step_id, call_id, number, action, attempt, _, policy in call_rows.unresolved_calls(
        tx, list(open_steps)
    ):
        if policy == "retry":
            continue
        step = open_steps[step_id]
        if step.status == StepStatus.RUNNING and attempt == step.attempt:
            data: dict[str, Json] = {"call": call_id, "action": action, "number": number}
            locked.emit("tool_call.unknown", step, data)
        names.append(locked.title(step))
    return names


def response_text(result: CallResult) -> str | None:
    """Return a response as it is stored; one that cannot be stored is replaced by the reason."""
    if result.status is not CallStatus.SUCCEEDED:
        return None
    try:
        return json_values.encode(result.response, "response")
    except json_values.NotPlainJsonError as error:
        return json.dumps({"not_kept": str(error)})


def _record_spend(tx: Connection, resolved: list[tuple[LockedTask, CallResult]]) -> None:
    """Record what calls of models used, in their rows and in their budgets."""
    of_models = [(locked, result) for locked, result in resolved if result.reservation is not None]
    if not of_models:
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
        for _, result in of_models
        if (spend := result.spend) is not None
    ]
    if rows:
        call_rows.record_spend(tx, rows)
    budget_reservations.replace_reservations(tx, of_models)


def _emit_result(locked: LockedTask, result: CallResult) -> None:
    event = "tool_call.resolved" if result.is_resolved_by_check else f"tool_call.{result.status}"
    data: dict[str, Json] = {"call": result.call_id, "status": result.status}
    if result.resolved_by is not None:
        data["by"] = result.resolved_by
    spend = result.spend
    if spend is not None:
        data |= {
            "tokens_in": spend.tokens_in,
            "tokens_out": spend.tokens_out,
            "microusd": spend.microusd,
        }
    locked.emit(event, None, data)


def _wake_waiting(locked: LockedTask, call_id: str) -> None:
    """Wake the step that asked a person about a call whose result has now arrived."""
    for step in locked.steps.values():
        if step.status == StepStatus.WAITING and _waits_on_call(step, call_id):
            transitions.withdraw(locked, step, "the outcome is known now")
            transitions.wake(locked, step)


def _waits_on_call(step: StepRow, call_id: str) -> bool:
    on = step.wait
    return isinstance(on, UnknownCall) and on.call_id == call_id
