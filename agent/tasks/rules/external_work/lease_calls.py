"""What the holder of a lease says, applied to its step: every call counts only under its lease.

The lease is the fence. A call under a lease that has ended changes nothing and is *lost*, with two
exceptions: the repetition of the call that ended it gets the same answer, and a late result of an effect
that is still unknown settles exactly that effect.
"""

from typing import Final

from agent.core.state_machine import (
    TASK_ENDED,
    WORK_LEASED,
    CallStatus,
    StepStatus,
    TaskStatus,
    WorkStatus,
)
from agent.core.waits import Work
from agent.steps.types.call_records import CallResult
from agent.steps.types.outcome import Question, Retry, StepError
from agent.store.db.database import Connection
from agent.store.engine import call_rows, writes
from agent.store.engine.work_rows import WorkRow
from agent.tasks.rules import approvals, settlement, snapshots
from agent.tasks.rules.external_work import work_leases
from agent.tasks.rules.external_work.work_parts import LeaseCall, LeaseResult, LostReason
from agent.tasks.state import transitions
from agent.tasks.state.locked_task import LockedTask
from agent.tasks.state.rows import StepRow

LOST: Final[dict[str, LostReason]] = {
    WorkStatus.EXPIRED: "expired",
    WorkStatus.WITHDRAWN: "withdrawn",
    WorkStatus.COMPLETED: "ended",
    WorkStatus.FAILED: "ended",
}
_ENDED_BY: Final = {
    "complete": (WorkStatus.COMPLETED,),
    "fail": (WorkStatus.FAILED,),
    "release": (WorkStatus.QUEUED, *WORK_LEASED, WorkStatus.FAILED),
    "ask": (WorkStatus.ASKED,),
}
"""The states that each call leaves its work in: a repetition of it finds one of them."""
RELEASED: Final = "released"
"""The code of an attempt that its worker gave back after it had begun."""


def apply(tx: Connection, locked: LockedTask, call: LeaseCall) -> LeaseResult:
    """Apply a call; the step and the work of its lease are in memory if they exist."""
    address = call.address
    step = locked.steps.get((address.step_index, address.parallel_index))
    row = locked.work.get(address.work_id)
    if step is None or row is None or row.task_id != locked.task.id or row.step_id != step.id:
        return LeaseResult(lost="unknown")
    if not call.may_use(row.queue):
        # The same as for a lease that never was: a token sees nothing of other queues.
        return LeaseResult(lost="unknown")
    if not holds(locked, step, row, call.lease_id):
        return _late(tx, locked, step, row, call)
    if call.verb in _RESULTS:
        return _RESULTS[call.verb](tx, locked, step, row, call)
    return _report(tx, locked, step, row, call)


def holds(locked: LockedTask, step: StepRow, row: WorkRow, lease_id: str) -> bool:
    """Whether a lease counts: its work has it, and its step still waits on that work."""
    if row.status not in WORK_LEASED or row.lease_id != lease_id:
        return False
    on = step.wait
    return (
        step.status == StepStatus.WAITING
        and locked.task.status not in TASK_ENDED
        and isinstance(on, Work)
        and on.work_id == row.id
    )


def _report(
    tx: Connection, locked: LockedTask, step: StepRow, row: WorkRow, call: LeaseCall
) -> LeaseResult:
    """Record what does not end the lease, and extend it."""
    snapshot_id = None
    if call.verb == "running" and row.status == WorkStatus.LEASED:
        work_leases.start(locked, step, row)
    elif call.verb == "checkpoint":
        step.set_columns(checkpoint=call.text)
    elif call.verb == "log":
        entry = (locked.task.id, step.id, step.attempt, locked.now, call.stream, call.message)
        writes.insert_logs(tx, [entry])
    elif call.verb == "artifact":
        data = {"work": row.id, "name": call.label, **call.output}
        locked.emit("artifact.added", step, data)
    elif call.verb == "snapshot":
        token = snapshots.token_of(call.lease_id, call.client_token)
        new = snapshots.NewSnapshot(call.text or "null", call.label, client_token=token)
        appended = snapshots.append(tx, locked, step, new, f"worker:{row.leased_by}")
        if isinstance(appended, StepError):
            return LeaseResult(refusal=appended.message)
        snapshot_id = appended
    work_leases.extend(locked, row)
    return LeaseResult(
        directive="pause" if locked.task.status == TaskStatus.PAUSED else "continue",
        lease_expires_at=row.lease_expires_at,
        step_status=step.status,
        task_id=locked.task.id,
        snapshot_id=snapshot_id,
    )


def _complete(
    tx: Connection, locked: LockedTask, step: StepRow, row: WorkRow, call: LeaseCall
) -> LeaseResult:
    snapshot_id = None
    final = _final_snapshot(call)
    if final is not None:
        appended = snapshots.append(tx, locked, step, final, f"worker:{row.leased_by}")
        if isinstance(appended, StepError):
            return LeaseResult(refusal=appended.message)
        snapshot_id = appended
    key = _resolve(locked, step, row, CallStatus.SUCCEEDED, call, None)
    work_leases.end(locked, row, "work.completed")
    if locked.definition(step).set_state:
        # Its next attempt finds the recorded result, and renders what it writes to `state`.
        transitions.wake(locked, step, {"status": "completed"})
    else:
        transitions.succeed(locked, step, call.text, key)
    return _ended(locked, step, snapshot_id=snapshot_id)


def _final_snapshot(call: LeaseCall) -> snapshots.NewSnapshot | None:
    """Return the snapshot that a result carries; the repetition of the result finds it by its lease."""
    if call.snapshot is None:
        return None
    value, label = call.snapshot
    token = snapshots.token_of(call.lease_id, "complete")
    return snapshots.NewSnapshot(value, label, client_token=token)


def _fail(
    tx: Connection, locked: LockedTask, step: StepRow, row: WorkRow, call: LeaseCall
) -> LeaseResult:
    error = StepError(call.code, "remote", call.message, is_final=not call.is_retryable)
    _resolve(locked, step, row, CallStatus.FAILED, call, error)
    work_leases.end(locked, row, "work.failed", call.message)
    end_attempt(locked, step, error, call.delay_seconds)
    return _ended(locked, step)


def _release(
    tx: Connection, locked: LockedTask, step: StepRow, row: WorkRow, call: LeaseCall
) -> LeaseResult:
    """Put the work back. What had begun counts as an attempt, unless its task is paused."""
    _save(step, call)
    has_begun = row.status == WorkStatus.RUNNING or row.call_id is not None
    if has_begun and locked.task.status != TaskStatus.PAUSED:
        text = f"{row.leased_by} gave it back: {call.message}"
        error = StepError(RELEASED, "remote", text)
        _resolve(locked, step, row, CallStatus.FAILED, call, error)
        locked.emit(
            "step.released",
            step,
            {"work": row.id, "worker": row.leased_by, "reason": call.message},
        )
        work_leases.end(locked, row, "work.failed", call.message)
        end_attempt(locked, step, error, call.delay_seconds)
    else:
        work_leases.release(locked, step, row, call.message)
    return _ended(locked, step)


def _ask(
    tx: Connection, locked: LockedTask, step: StepRow, row: WorkRow, call: LeaseCall
) -> LeaseResult:
    """Park the step with a question to a person; the attempt goes on with the answer."""
    _save(step, call)
    options = call.question
    question = Question(
        kind="input",
        message=call.message,
        request={"work": row.id, "queue": row.queue, "worker": row.leased_by},
        choices=options.get("choices"),
        schema=options.get("schema"),
        who=options.get("who"),
        expires_seconds=options.get("expires_seconds"),
    )
    approval = approvals.add_question(locked, step, question)
    work_leases.park(locked, step, row, approval.id)
    step.wake_at = approval.wake_at
    approvals.emit_requested(locked, step, approval)
    return _ended(locked, step, approval_id=approval.id)


_RESULTS: Final = {"complete": _complete, "fail": _fail, "release": _release, "ask": _ask}


def end_attempt(
    locked: LockedTask,
    step: StepRow,
    error: StepError,
    delay_seconds: float | None = None,
    *,
    is_unknown: bool = False,
) -> None:
    """End an external attempt that did not succeed: another follows, or the step fails."""
    if error.is_final:
        transitions.fail(locked, step, error)
        return
    settlement.retry_or_fail(locked, step, Retry(error, delay_seconds, is_unknown=is_unknown))
    if is_unknown:
        locked.emit("tool_call.unknown", None, {"step": step.id})


def _resolve(
    locked: LockedTask,
    step: StepRow,
    row: WorkRow,
    status: CallStatus,
    call: LeaseCall,
    error: StepError | None,
) -> str | None:
    """Record the result of the call that the work is, if it is one; return its key."""
    work_leases.record_intent(locked, step, row)
    intent = work_leases.intent_of(row)
    if intent is None or row.call_id is None:
        return None
    key = str(intent["idempotency_key"])
    response = call.output if status is CallStatus.SUCCEEDED else None
    locked.results.append(CallResult(row.call_id, key, status, response, error))
    return key


def _save(step: StepRow, call: LeaseCall) -> None:
    if call.checkpoint is not None:
        step.set_columns(checkpoint=call.checkpoint)


def _late(
    tx: Connection, locked: LockedTask, step: StepRow, row: WorkRow, call: LeaseCall
) -> LeaseResult:
    """Answer a call under a lease that has ended."""
    if row.last_lease_id != call.lease_id:
        return LeaseResult(lost="released" if row.status != WorkStatus.WITHDRAWN else "withdrawn")
    if row.status in _ENDED_BY.get(call.verb, ()):
        final = _final_snapshot(call)
        known = None if final is None else snapshots.repeated(tx, locked, final)
        snapshot_id = known if isinstance(known, str) else None
        return _ended(locked, step, approval_id=row.approval_id, snapshot_id=snapshot_id)
    if row.status == WorkStatus.WITHDRAWN and call.verb == "heartbeat":
        return LeaseResult(directive="cancel", step_status=step.status, task_id=locked.task.id)
    intent = work_leases.intent_of(row)
    may_settle = (
        call.verb in ("complete", "fail")
        and row.status in (WorkStatus.EXPIRED, WorkStatus.WITHDRAWN)
        and intent is not None
        and intent["effect"]
        and row.call_id is not None
        and not call_rows.is_call_resolved(tx, row.call_id)
    )
    if not may_settle:
        return LeaseResult(lost=LOST.get(row.status, "released"))
    _settle_unknown(locked, step, row, call)
    return _ended(locked, step, is_late=True)


def _settle_unknown(locked: LockedTask, step: StepRow, row: WorkRow, call: LeaseCall) -> None:
    """Resolve the effect of a lost attempt by its own late result, and let the step go on."""
    if call.verb == "complete":
        _resolve(locked, step, row, CallStatus.SUCCEEDED, call, None)
    else:
        error = StepError(call.code, "remote", call.message, is_final=not call.is_retryable)
        _resolve(locked, step, row, CallStatus.FAILED, call, error)
    if locked.task.status in TASK_ENDED:
        return
    on = step.wait
    if step.status == StepStatus.PENDING and step.wake_at is not None:
        step.wake_at = min(step.wake_at, locked.now)
    elif step.status == StepStatus.WAITING and isinstance(on, Work):
        again = locked.work.get(on.work_id)
        if again is not None and again.status == WorkStatus.QUEUED:
            # The next attempt is not begun: it finds this result instead.
            transitions.wake(locked, step, {"status": "settled"})


def _ended(
    locked: LockedTask,
    step: StepRow,
    *,
    approval_id: str | None = None,
    snapshot_id: str | None = None,
    is_late: bool = False,
) -> LeaseResult:
    return LeaseResult(
        step_status=step.status,
        task_id=locked.task.id,
        approval_id=approval_id,
        snapshot_id=snapshot_id,
        is_late=is_late,
    )
