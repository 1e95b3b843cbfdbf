"""Questions to people, inside the transactions of the steps that wait on them.

The transaction that parks a step inserts the approval. The one that decides it holds the task's lock
and applies the consequences. So a step waits on an approval exactly as long as that is pending, and no
answer can come too early, be lost, or be applied twice.
"""

import json
from dataclasses import dataclass, replace

from agent.core import waits
from agent.core.clock import SECOND
from agent.core.ids import new_id, request_hash
from agent.core.state_machine import (
    APPROVAL,
    TASK_ENDED,
    ApprovalStatus,
    CallStatus,
    StepStatus,
    WorkStatus,
    moved,
)
from agent.core.waits import Approval, UnknownCall, Work
from agent.steps.attempt.recorded_calls.replay import REQUEST_CHANGED
from agent.steps.spec.unknown_question import (
    effect_summary,
    unknown_question,
    what_happened,
)
from agent.steps.types.call_records import CallResult
from agent.steps.types.outcome import Json, Question, StepError
from agent.store.db import json_values
from agent.store.db.database import Connection
from agent.store.engine import approval_rows as store
from agent.store.engine import attempt_reads, call_rows, lineage, reads
from agent.store.engine.approval_rows import ApprovalRow
from agent.tasks.rules import call_ledger
from agent.tasks.rules.external_work import work_leases
from agent.tasks.state import transitions
from agent.tasks.state.locked_task import LockedTask
from agent.tasks.state.rows import StepRow
from agent.workflows.templates.templates import is_template


@dataclass(frozen=True, slots=True)
class Decision:
    """A person's answer, after it was validated and authorized."""

    status: ApprovalStatus
    by: str
    channel: str
    comment: str | None = None
    value: Json = None
    edits: dict[str, Json] | None = None
    approved_hash: str | None = None


def ask(
    tx: Connection,
    locked: LockedTask,
    step: StepRow,
    question: Question,
    checkpoint: Json,
    unknown_call_id: str | None = None,
) -> None:
    """Park a step on a question, which may be about an unknown call."""
    changes = lineage.asked_again(tx, locked.task.id, locked.definition(step).name)
    if changes and unknown_call_id is None:
        text = f"{question.message}\n\nAsked again, since the earlier answer does not cover this:\n"
        question = replace(question, message=text + "\n".join(changes))
    row = add_question(locked, step, question)
    on = Approval(row.id) if unknown_call_id is None else UnknownCall(unknown_call_id, row.id)
    transitions.wait(locked, step, on, row.wake_at, _wrapped_checkpoint(row.id, checkpoint))
    emit_requested(locked, step, row)


def add_question(locked: LockedTask, step: StepRow, question: Question) -> ApprovalRow:
    """Insert a question with this transaction; the caller lets the step wait on it."""
    now = locked.now
    remind_us = _microseconds(question.remind_seconds)
    expires_us = _microseconds(question.expires_seconds)
    row = ApprovalRow(
        id=new_id(),
        task_id=locked.task.id,
        step_id=step.id,
        attempt=step.attempt,
        kind=question.kind,
        status=ApprovalStatus.PENDING,
        message=question.message,
        request=json_values.encode(question.request, "request"),
        request_hash=request_hash(question.request),
        choices=_encoded(question.choices),
        value_schema=_encoded(question.schema),
        editable=_encoded(question.editable),
        who=_encoded(question.who),
        expires_at=None if expires_us is None else now + expires_us,
        on_expiry=question.on_expiry,
        remind_at=None if remind_us is None else now + remind_us,
        remind_us=remind_us,
        created_at=now,
    )
    locked.questions.append(row)
    return row


def emit_requested(locked: LockedTask, step: StepRow, row: ApprovalRow) -> None:
    """Emit that a person is asked."""
    data = {"approval": row.id, "kind": row.kind, "message": row.message}
    locked.emit("approval.requested", step, data)


def ask_about_unknown(
    tx: Connection,
    locked: LockedTask,
    step: StepRow,
    call_id: str,
    checkpoint: Json,
    changed_request: dict[str, Json] | None,
) -> None:
    """Park a step until a person says what became of one of its effects.

    `changed_request` is what the step would send now, where that is another request.
    """
    call = call_rows.find_call(tx, call_id)
    action, text, _, started_at = call or ("an effect", None, "", None)
    request = json.loads(text) if text is not None else None
    message = unknown_question(
        locked.title(step),
        effect_summary(action, request),
        started_at,
        has_changed=changed_request is not None,
        happened=what_happened(_last_error(tx, step)),
    )
    shown = {"call": call_id, "action": action, "request": request}
    if changed_request is not None:
        shown["now"] = changed_request
    question = Question("unknown", message, shown, who=gate_who(tx, locked, step) or None)
    ask(tx, locked, step, question, checkpoint, call_id)


def gate_who(tx: Connection, locked: LockedTask, step: StepRow) -> list[str]:
    """Return who may answer for a step's gate: that also decides whether its effect is made again.

    As its last question had it; before one was asked in this task, as the definition says, unless that is a template.
    """
    for row in reversed(store.of_steps(tx, [step.id])):
        if row.kind == "approval":
            asked: list[str] = json.loads(row.who or "[]")
            return asked
    written = (locked.definition(step).approval or {}).get("who") or []
    defined = [written] if isinstance(written, str) else list(written)
    return [] if any(is_template(each) for each in defined) else defined


def _last_error(tx: Connection, step: StepRow) -> dict[str, Json] | None:
    """Return the error of the attempt before this one."""
    for _, _, _, _, text in attempt_reads.own_values(tx, [step.id]):
        error: dict[str, Json] | None = json.loads(text) if text is not None else None
        return error
    return None


def decide(
    tx: Connection, locked: LockedTask, step: StepRow, row: ApprovalRow, decision: Decision
) -> ApprovalRow:
    """Record an answer and apply its consequences; the row was read under the task's lock."""
    status = moved(APPROVAL, f"approval.{decision.status}", row.status)
    written = {
        "decided_by": decision.by,
        "decided_channel": decision.channel,
        "comment": decision.comment,
        "value": _encoded(decision.value),
        "edits": _encoded(decision.edits),
        "approved_hash": decision.approved_hash,
    }
    is_first = store.decide(tx, row.id, status, locked.now, **written)
    assert is_first, "a pending approval was decided by a transaction without the task's lock"
    data: dict[str, Json] = {"approval": row.id, "status": status, "by": decision.by}
    data["channel"] = decision.channel
    if decision.comment is not None:
        data["comment"] = decision.comment
    if decision.edits:
        data["edited"] = sorted(decision.edits)
    locked.emit("approval.decided", step, data)
    decided = store.find(tx, row.id)
    assert decided is not None
    _apply_decision(tx, locked, step, decided)
    return decided


def check(tx: Connection, locked: LockedTask, step: StepRow) -> str | None:
    """Do what is due about the question that a step waits on; return what was done.

    The safety net: a decision takes effect here also if its notification was lost.
    """
    approval_id = waits.approval_of(step.wait)
    # The task may have been cancelled since it was found; its steps then stay as they are.
    is_over = locked.task.status in TASK_ENDED
    if is_over or step.status != StepStatus.WAITING or approval_id is None:
        return None
    row = store.find(tx, approval_id)
    if row is None:
        # Without its approval the step would wait for ever: it asks again.
        transitions.wake(locked, step, {"decision": None})
        return "woken"
    if row.status != ApprovalStatus.PENDING:
        _apply_decision(tx, locked, step, row)
        return "woken"
    if row.expires_at is not None and row.expires_at <= locked.now:
        return expire(tx, locked, step, row)
    is_due = row.remind_at is not None and row.remind_at <= locked.now
    if is_due:
        row = replace(row, remind_at=locked.now + row.remind_us if row.remind_us else None)
        store.set_reminder(tx, row.id, row.remind_at)
        locked.emit("approval.reminded", step, {"approval": row.id, "message": row.message})
    step.wake_at = row.wake_at
    return "reminded" if is_due else None


def defer(
    tx: Connection, locked: LockedTask, step: StepRow, row: ApprovalRow, delay_us: int, by: str
) -> None:
    """Postpone the next reminder of an open question."""
    row = replace(row, remind_at=locked.now + delay_us)
    store.set_reminder(tx, row.id, row.remind_at)
    step.wake_at = row.wake_at
    locked.emit("approval.deferred", step, {"approval": row.id, "by": by, "until": row.remind_at})


def expire(tx: Connection, locked: LockedTask, step: StepRow, row: ApprovalRow) -> str:
    """Expire a question: the step fails, or the question is renewed."""
    status = moved(APPROVAL, "approval.expired", row.status)
    store.decide(tx, row.id, status, locked.now)
    locked.emit("approval.expired", step, {"approval": row.id})
    if row.on_expiry != "renew" or row.expires_at is None:
        _apply_decision(tx, locked, step, replace(row, status=status))
        return "expired"
    renewed = replace(
        row,
        id=new_id(),
        expires_at=locked.now + (row.expires_at - row.created_at),
        remind_at=None if row.remind_us is None else locked.now + row.remind_us,
        renews=row.id,
        created_at=locked.now,
    )
    locked.questions.append(renewed)
    text = reads.checkpoint_of(tx, step.id)
    saved = json.loads(text)["saved"] if text is not None else None
    step.set_columns(checkpoint=_wrapped_checkpoint(renewed.id, saved))
    step.wait = Approval(renewed.id)
    step.wake_at = renewed.wake_at
    data = {"approval": renewed.id, "renews": row.id, "message": row.message}
    locked.emit("approval.renewed", step, data)
    return "renewed"


def _apply_decision(tx: Connection, locked: LockedTask, step: StepRow, row: ApprovalRow) -> None:
    """Apply a decision to the step that waited on it."""
    match row.status:
        case ApprovalStatus.DENIED if row.kind != "tool":
            text = f"approval denied by {row.decided_by}"
            text += f": {row.comment}" if row.comment else ""
            transitions.fail(locked, step, StepError("approval_denied", "denied", text))
        case ApprovalStatus.EXPIRED:
            text = f"approval expired: no answer in time ({row.message})"
            transitions.fail(locked, step, StepError("approval_expired", "denied", text))
        case _ if isinstance(step.wait, Work):
            _return_to_queue(tx, locked, step, row)
        case ApprovalStatus.ANSWERED if row.kind == "unknown":
            _apply_verdict(tx, locked, step, row)
        case ApprovalStatus.APPROVED if row.kind == "approval":
            # Attempts that were lost while they asked did nothing: an approval allows one attempt.
            step.max_attempts = max(step.max_attempts, step.attempt)
            transitions.wake(locked, step, {"decision": row.status})
        case _:
            transitions.wake(locked, step, {"decision": row.status})


def _return_to_queue(tx: Connection, locked: LockedTask, step: StepRow, row: ApprovalRow) -> None:
    """Queue the work again whose worker has asked; the next claim carries the answer."""
    on = step.wait
    assert isinstance(on, Work)
    work_leases.load(tx, locked, [on.work_id])
    work = locked.work.get(on.work_id)
    if work is None or work.status != WorkStatus.ASKED:
        # Its row is gone or damaged: the step offers its work again.
        transitions.wake(locked, step, {"decision": row.status})
        return
    answer = {
        "question": row.message,
        "status": row.status,
        "value": None if row.value is None else json.loads(row.value),
        "by": row.decided_by,
        "comment": row.comment,
    }
    work_leases.unpark(locked, step, work, answer)


def _apply_verdict(tx: Connection, locked: LockedTask, step: StepRow, row: ApprovalRow) -> None:
    """Resolve a call by a person's verdict."""
    answer = json.loads(row.value or "{}")
    verdict = answer.get("verdict")
    if verdict == "fail":
        message = f"the outcome is unknown, and {row.decided_by} decided to fail the step"
        transitions.fail(locked, step, StepError("outcome_unknown", "unknown", message))
        return
    request = json.loads(row.request)
    call_id = request["call"]
    call = call_rows.find_call(tx, call_id)
    assert call is not None, "a call is never removed before its step"
    error = None
    if verdict == "retry":
        error = StepError("not_applied", "unknown", "a person answered that it did not happen")
        # The verdict allows one attempt more.
        step.max_attempts = max(step.max_attempts, step.attempt)
    elif "now" in request:
        # The step accepts this result although its request has changed.
        text = f"{row.decided_by} saw both requests and answered that it happened"
        error = StepError(REQUEST_CHANGED, "unknown", text)
    # Before the call is resolved: resolving it withdraws the question of a step that still waits.
    transitions.wake(locked, step, {"decision": row.status})
    locked.results.append(
        CallResult(
            call_id,
            call[2],
            CallStatus.SUCCEEDED if verdict == "done" else CallStatus.FAILED,
            response=answer.get("output"),
            error=error,
            is_resolved_by_check=True,
        )
    )
    call_ledger.resolve(tx, [locked])


def unwrap_checkpoint(tx: Connection, step: StepRow) -> None:
    """Leave a step its own checkpoint before another wait takes the place of its question.

    Only the wait says that the approval's id is around the checkpoint.
    """
    approval_id = waits.approval_of(step.wait)
    if approval_id is None or "checkpoint" in step.extra:
        return
    text = reads.checkpoint_of(tx, step.id)
    stored = None if text is None else json.loads(text)
    if isinstance(stored, dict) and stored.get("approval_id") == approval_id:
        saved = stored["saved"]
        step.set_columns(
            checkpoint=None if saved is None else json_values.encode(saved, "checkpoint")
        )


def _wrapped_checkpoint(approval_id: str, saved: Json) -> str:
    """Return the checkpoint of a step that asks: the approval's id around the step's own checkpoint."""
    return json_values.encode({"approval_id": approval_id, "saved": saved}, "checkpoint")


def _encoded(value: Json) -> str | None:
    return None if value is None else json_values.encode(value, "answer")


def _microseconds(seconds: float | None) -> int | None:
    return None if seconds is None else int(seconds * SECOND)
