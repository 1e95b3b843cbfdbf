"""The end of leases by time.

Only time in which this process was up and answering counts: it begins with its start, and again after an
outage of the database and after a jump of its clock. A lease lasts at least one lease longer than that. It
expires by the end of the answered time, not by the transaction's own: the clock may have jumped between the
two. A process that answers no workers lets no lease expire.
"""

from dataclasses import replace

from agent.core.clock import SECOND
from agent.core.state_machine import WORK_LEASED, CallStatus, TaskStatus, WorkStatus
from agent.core.waits import Work
from agent.steps.types.call_records import CallResult
from agent.steps.types.outcome import StepError
from agent.store.db.database import Connection
from agent.store.engine.work_rows import WorkRow
from agent.tasks.rules.claiming import AnsweredTime
from agent.tasks.rules.external_work import lease_calls, work_leases
from agent.tasks.rules.external_work.work_parts import LeaseCall, LeaseResult
from agent.tasks.state import transitions
from agent.tasks.state.locked_task import LockedTask
from agent.tasks.state.rows import StepRow

UNWATCHED_US = 2 * SECOND
"""When a process that answers no workers checks a lease again: soon, since a daemon that is starting is
such a process until its server is up, and another one may answer."""


def check(tx: Connection, locked: LockedTask, step: StepRow, answered: AnsweredTime | None) -> None:
    """Check the work that a due step waits on: its lease expires, or is checked again later."""
    on = step.wait
    assert isinstance(on, Work)
    work_leases.load(tx, locked, [on.work_id])
    row = locked.work.get(on.work_id)
    if row is None:
        # Without its work the step would wait for ever: it offers it again.
        transitions.wake(locked, step, {"status": "gone"})
        return
    if row.status not in WORK_LEASED:
        step.wake_at = None
        return
    if answered is None:
        step.wake_at = locked.now + UNWATCHED_US
        return
    due = work_leases.check_at(row)
    if due > answered.until:
        step.wake_at = due
        return
    least = answered.since + row.lease_us
    if least > answered.until:
        work_leases.postpone(locked, step, row, least)
        return
    expire(locked, step, row)


def check_now(
    tx: Connection, locked: LockedTask, call: LeaseCall, answered: AnsweredTime | None
) -> LeaseResult:
    """Check a lease before its wake time, by the rule of `check`; the result says whether it has expired."""
    address = call.address
    step = locked.steps.get((address.step_index, address.parallel_index))
    row = locked.work.get(address.work_id)
    if step is None or row is None:
        return LeaseResult(lost="unknown")
    if lease_calls.holds(locked, step, row, call.lease_id):
        if locked.task.status != TaskStatus.RUNNING:
            # As for every due step: nothing happens to those of a paused task.
            return LeaseResult(directive="pause", task_id=locked.task.id)
        check(tx, locked, step, answered)
    if row.status in WORK_LEASED and row.lease_id == call.lease_id:
        return LeaseResult(lease_expires_at=row.lease_expires_at, task_id=locked.task.id)
    is_last = row.last_lease_id == call.lease_id
    return LeaseResult(lost=lease_calls.LOST.get(row.status, "released") if is_last else "released")


def expire(locked: LockedTask, step: StepRow, row: WorkRow) -> None:
    """End an attempt whose lease is over: unknown if it may have acted, else it failed."""
    error = _error(locked, row)
    intent = work_leases.intent_of(row)
    is_unknown = row.call_id is not None and intent is not None and bool(intent["effect"])
    if is_unknown:
        text = f"{error.message}: whether its effect happened is unknown"
        error = replace(error, kind="unknown", message=text)
    data = {"work": row.id, "worker": row.leased_by, "code": error.code}
    locked.emit("step.lease_expired", step, data)
    work_leases.end(locked, row, "work.expired", error.message)
    if row.call_id is not None and intent is not None and not is_unknown:
        key = str(intent["idempotency_key"])
        locked.results.append(CallResult(row.call_id, key, CallStatus.FAILED, None, error))
    lease_calls.end_attempt(locked, step, error, is_unknown=is_unknown)


def _error(locked: LockedTask, row: WorkRow) -> StepError:
    worker = row.leased_by
    if row.run_by is not None and row.run_by <= locked.now:
        seconds = (row.timeout_us or 0) / SECOND
        text = f"execution timeout: {worker} was not done after {seconds:g} s"
        return StepError("execution_timeout", "timeout", text)
    is_late = row.start_by is not None and row.start_by <= locked.now
    if row.status == WorkStatus.LEASED and is_late:
        seconds = row.start_within_us / SECOND
        text = f"job never started: {worker} claimed it and did not begin within {seconds:g} s"
        return StepError("never_started", "timeout", text)
    text = f"heartbeat timeout: no call of {worker} for {row.lease_us / SECOND:g} s"
    return StepError("heartbeat_timeout", "timeout", text)
