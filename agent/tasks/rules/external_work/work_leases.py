"""Work and its leases: how the row of work changes, together with the step that waits on it.

The step waits on its work from the offer to the end. Only a leased row has a lease; each of these
functions writes the row and the step's `wake_at`, by which the lease expires. A row that its step no
longer waits on is withdrawn where the step leaves (`transitions`).
"""

import json
from dataclasses import replace
from typing import Any, Final

from agent.core.clock import SECOND
from agent.core.ids import new_id
from agent.core.plain_json import Json
from agent.core.state_machine import WORK, WORK_LEASED, WorkStatus, moved
from agent.core.waits import Work
from agent.steps.types.call_records import Intent
from agent.steps.types.outcome import WorkOffer
from agent.store.db.database import Connection
from agent.store.engine import work_rows
from agent.store.engine.work_rows import WorkRow
from agent.tasks.rules.external_work.work_parts import new_lease_id
from agent.tasks.state import transitions
from agent.tasks.state.locked_task import LockedTask
from agent.tasks.state.rows import StepRow

_RENEWED_AFTER: Final = 3
"""A lease is written again once this part of it has passed: a third."""


def offer(locked: LockedTask, step: StepRow, offered: WorkOffer) -> None:
    """Queue the work of a step, which waits on it from now on."""
    row = WorkRow(
        id=new_id(),
        task_id=locked.task.id,
        step_id=step.id,
        step_index=step.index,
        parallel_index=step.parallel_index,
        attempt=step.attempt,
        queue=offered.queue,
        priority=locked.task.priority,
        status=WorkStatus.QUEUED,
        input=offered.input_text,
        intent=None if offered.intent is None else json.dumps(_intent_document(offered)),
        call_id=None,
        lease_us=int(offered.lease_seconds * SECOND),
        start_within_us=int(offered.start_within_seconds * SECOND),
        timeout_us=None
        if offered.timeout_seconds is None
        else int(offered.timeout_seconds * SECOND),
        created_at=locked.now,
    )
    locked.new_work.append(row)
    transitions.wait(locked, step, Work(row.id, row.queue), None, None)


def _intent_document(offered: WorkOffer) -> dict[str, Json]:
    intent = offered.intent
    assert intent is not None
    return {
        "number": intent.number,
        "action": intent.action,
        "request_hash": intent.request_hash,
        "idempotency_key": intent.idempotency_key,
        "remote_key": intent.remote_key,
        "on_unknown": intent.on_unknown,
        "effect": offered.is_effect,
    }


def intent_of(row: WorkRow) -> dict[str, Any] | None:
    """Return the record of the call that the work is; None where it is no call."""
    document: dict[str, Any] | None = None if row.intent is None else json.loads(row.intent)
    return document


def load(tx: Connection, locked: LockedTask, work_ids: list[str]) -> None:
    """Read rows of a task under its lock; a row in memory wins."""
    missing = [work_id for work_id in work_ids if work_id not in locked.work]
    if missing:
        locked.work.update(work_rows.find(tx, missing))


def lease(
    locked: LockedTask,
    step: StepRow,
    row: WorkRow,
    worker: str,
    client_token: str | None,
    lease_us: int | None,
) -> None:
    """Give work to a worker."""
    _move(locked, row, "work.leased")
    row.lease_id = new_lease_id(row)
    row.leased_by, row.client_token = worker, client_token
    row.lease_us = lease_us or row.lease_us
    row.leased_at = locked.now
    row.lease_expires_at = locked.now + row.lease_us
    row.start_by, row.started_at, row.run_by = locked.now + row.start_within_us, None, None
    step.wake_at = check_at(row)
    locked.emit("step.leased", step, {"work": row.id, "queue": row.queue, "worker": worker})


def start(locked: LockedTask, step: StepRow, row: WorkRow) -> None:
    """Record that a worker begins: from now on an effect may happen."""
    _move(locked, row, "work.started")
    row.started_at, row.start_by = locked.now, None
    row.run_by = None if row.timeout_us is None else locked.now + row.timeout_us
    row.lease_expires_at = locked.now + row.lease_us
    step.wake_at = check_at(row)
    record_intent(locked, step, row)
    locked.emit("step.started", step, {"work": row.id, "worker": row.leased_by})


def record_intent(locked: LockedTask, step: StepRow, row: WorkRow) -> None:
    """Record the call that the work is, unless an earlier lease of it has begun."""
    intent = intent_of(row)
    if intent is None or row.call_id is not None:
        return
    row.call_id = new_id()
    recorded = Intent(
        call_id=row.call_id,
        number=intent["number"],
        action=intent["action"],
        request={"queue": row.queue, "with": json.loads(row.input)},
        request_hash=intent["request_hash"],
        idempotency_key=intent["idempotency_key"],
        remote_key=intent["remote_key"],
        on_unknown=intent["on_unknown"],
        # The lease says until when it may be under way, not the call.
        send_by=locked.now,
        expires_at=locked.now,
        settles_step=True,
    )
    locked.intents.append((step.id, step.attempt, recorded))
    locked.emit("tool_call.intended", step, {"call": row.call_id, "action": recorded.action})
    step.idempotency_key = recorded.idempotency_key


def extend(locked: LockedTask, row: WorkRow) -> None:
    """Extend a lease, unless it was written a moment ago: a third of it may pass in between.

    The step's wake time stays: the check that it causes finds the longer lease.
    """
    assert row.lease_expires_at is not None
    if row.lease_expires_at - locked.now <= row.lease_us - row.lease_us // _RENEWED_AFTER:
        row.lease_expires_at = locked.now + row.lease_us
        locked.changed_work.add(row.id)


def postpone(locked: LockedTask, step: StepRow, row: WorkRow, until: int) -> None:
    """Let a lease last at least until an instant, and check it again then."""
    assert row.lease_expires_at is not None
    row.lease_expires_at = max(row.lease_expires_at, until)
    locked.changed_work.add(row.id)
    step.wake_at = max(check_at(row), until)


def check_at(row: WorkRow) -> int:
    """Return when to check a lease next: when it expires, must have begun, or must be over."""
    instants = (row.lease_expires_at, row.start_by, row.run_by)
    return min(instant for instant in instants if instant is not None)


def release(locked: LockedTask, step: StepRow, row: WorkRow, reason: str) -> None:
    """Put work back into its queue; the attempt goes on with the next lease."""
    worker = row.leased_by
    _end_lease(locked, row, "work.released", reason)
    row.client_token = None
    step.wake_at = None
    locked.emit("step.released", step, {"work": row.id, "worker": worker, "reason": reason})


def park(locked: LockedTask, step: StepRow, row: WorkRow, approval_id: str) -> None:
    """Take work out of its queue until a person has answered."""
    _end_lease(locked, row, "work.asked", None)
    row.client_token, row.approval_id, row.answer = None, approval_id, None
    step.wait = Work(row.id, row.queue, approval_id)


def unpark(locked: LockedTask, step: StepRow, row: WorkRow, answer: Json) -> None:
    """Put parked work back into its queue, with the answer that the next claim carries."""
    _move(locked, row, "work.answered")
    row.answer = json.dumps(answer, ensure_ascii=False)
    row.approval_id = None
    step.wait = Work(row.id, row.queue)
    step.wake_at = None
    locked.emit("step.requeued", step, {"work": row.id, "queue": row.queue})


def end(locked: LockedTask, row: WorkRow, event: str, reason: str | None = None) -> None:
    """End work and its lease."""
    _end_lease(locked, row, event, reason)
    row.ended_at = locked.now


def _end_lease(locked: LockedTask, row: WorkRow, event: str, reason: str | None) -> None:
    assert row.status in WORK_LEASED
    _move(locked, row, event)
    row.last_lease_id = row.lease_id
    row.lease_id = row.leased_by = row.lease_expires_at = None
    row.start_by = row.run_by = None
    row.reason = reason


def _move(locked: LockedTask, row: WorkRow, event: str) -> None:
    row.status = moved(WORK, event, row.status)
    locked.changed_work.add(row.id)


def copied(row: WorkRow) -> WorkRow:
    """Return a row as it is now: later transactions may change the one in memory."""
    return replace(row)
