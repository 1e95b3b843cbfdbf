"""Waits that began while the clock ran ahead, once it has been corrected: they would last as much longer.

Questions, leases and the times of calls that may be under way are moved back to now, as a whole. Other waits end
early, and their steps decide again how long to wait: that is what every step can do at any time. The time limit of
a task counts from now.
"""

from dataclasses import replace

from agent.core import waits
from agent.core.clock import CLOCK_ERROR_US
from agent.core.state_machine import WORK_LEASED, ApprovalStatus, StepStatus
from agent.core.waits import Work
from agent.store.db.database import Connection
from agent.store.engine import approval_rows, call_rows, task_rows
from agent.tasks.rules.external_work import work_leases
from agent.tasks.state.locked_task import LockedTask
from agent.tasks.state.rows import StepRow


def correct(tx: Connection, locked: LockedTask) -> None:
    """Let what began in the future begin now."""
    _correct_deadline(tx, locked)
    call_rows.begin_now(tx, locked.task.id, locked.now + CLOCK_ERROR_US, locked.now)
    for step in locked.load_open(tx):
        if step.wake_at is None or step.wake_at <= locked.now:
            continue
        if (approval_id := waits.approval_of(step.wait)) is not None:
            _correct_question(tx, locked, step, approval_id)
        elif isinstance(step.wait, Work) and step.status == StepStatus.WAITING:
            _correct_lease(tx, locked, step, step.wait)
        elif _is_ahead(step.started_at, locked):
            step.wake_at = locked.now


def _is_ahead(instant: int | None, locked: LockedTask) -> bool:
    return instant is not None and instant > locked.now + CLOCK_ERROR_US


def _correct_deadline(tx: Connection, locked: LockedTask) -> None:
    started_at, task = task_rows.started_at(tx, locked.task.id), locked.task
    if task.deadline is not None and started_at is not None and _is_ahead(started_at, locked):
        task.deadline -= started_at - locked.now
        task.set_columns(started_at=locked.now)


def _correct_question(tx: Connection, locked: LockedTask, step: StepRow, approval_id: str) -> None:
    row = approval_rows.find(tx, approval_id)
    if row is None or row.status != ApprovalStatus.PENDING or not _is_ahead(row.created_at, locked):
        return
    ahead_us = row.created_at - locked.now
    row = replace(
        row,
        created_at=locked.now,
        expires_at=None if row.expires_at is None else row.expires_at - ahead_us,
        remind_at=None if row.remind_at is None else row.remind_at - ahead_us,
    )
    approval_rows.set_times(tx, row)
    step.wake_at = row.wake_at


def _correct_lease(tx: Connection, locked: LockedTask, step: StepRow, on: Work) -> None:
    work_leases.load(tx, locked, [on.work_id])
    row = locked.work.get(on.work_id)
    if row is None or row.status not in WORK_LEASED or not _is_ahead(row.leased_at, locked):
        return
    assert row.leased_at is not None
    ahead_us = row.leased_at - locked.now
    for name in ("leased_at", "lease_expires_at", "start_by", "started_at", "run_by"):
        instant = getattr(row, name)
        setattr(row, name, None if instant is None else instant - ahead_us)
    locked.changed_work.add(row.id)
    step.wake_at = work_leases.check_at(row)
