"""Due tasks: changes of their steps besides a claim.

Timers fire, deadlines pass, fan-outs admit more items, approvals expire, and steps that wait for a
child check whether it has ended; leases of external workers expire.
"""

from collections.abc import Sequence

from agent.core.state_machine import StepStatus, TaskStatus
from agent.core.waits import Approval, Child, Timer, UnknownCall, Work
from agent.store.db.database import Connection
from agent.store.db.json_values import set_of
from agent.store.engine import reads
from agent.store.engine.reads import Statement
from agent.tasks.commit.scope import TxScope
from agent.tasks.rules import advance, approvals, child_tasks, claiming, fanout, settlement
from agent.tasks.rules.claiming import ClaimCapacity
from agent.tasks.rules.external_work import work_expiry
from agent.tasks.state import transitions
from agent.tasks.state.locked_task import LockedTask
from agent.tasks.state.rows import STEP_COLUMNS, TASK_COLUMNS, StepRow


def lock(scope: TxScope, task_ids: list[str], then: Sequence[Statement] = ()) -> list[reads.Rows]:
    """Lock and read tasks, from the cache where that is valid without a check.

    Return the answers of the statements `then`: they are sent with the lock, and read rows under it.
    """
    cached = scope.cache.take(task_ids, scope.now)
    if not scope.connection.can_assume:
        scope.tasks |= cached
    unread = [task_id for task_id in task_ids if task_id not in scope.tasks]
    if not unread:
        return scope.connection.query_each(then)
    locking = reads.locking_statement(scope.connection.sql, TASK_COLUMNS)
    rows, *answers = scope.connection.query_each([(locking, {"ids": set_of(unread)}), *then])
    scope.result.has_locked = len(rows) < len(unread)
    for values in rows:
        scope.add_task(values)
    return answers


def advance_due(scope: TxScope, task_ids: list[str]) -> None:
    """Read the due steps of tasks, and apply what is due in each task."""
    due = [
        scope.tasks[task_id]
        for task_id in task_ids
        if task_id in scope.tasks and _is_due(scope.tasks[task_id], scope.now)
    ]
    if not due:
        return
    # Round robin: no task needs more than its share of the slots.
    share = max(1, -(-scope.capacity.slots // len(due)))
    ids = [locked.task.id for locked in due]
    rows = reads.due_steps(scope.connection, STEP_COLUMNS, ids, scope.now, share)
    scope.result.has_more = scope.result.has_more or len(rows) >= share
    for values in rows:
        scope.add_step(values)
    for locked in due:
        _advance(scope.connection, locked, scope.capacity)


def _is_due(locked: LockedTask, now: int) -> bool:
    """Whether a task that was queried as due still is, under its lock."""
    task = locked.task
    return (
        task.status == TaskStatus.RUNNING
        and task.next_wake_time is not None
        and task.next_wake_time <= now
    )


def _advance(tx: Connection, locked: LockedTask, capacity: ClaimCapacity) -> None:
    """Wake the due steps of a task, and end it if its deadline has passed."""
    task = locked.task
    # The task's wake time has passed, so it must be derived again even if nothing else changes.
    locked.is_touched = True
    if task.deadline is not None and task.deadline <= locked.now:
        advance.miss_deadline(tx, locked)
    for step in list(locked.steps.values()):
        if step.wake_at is None or step.wake_at > locked.now:
            continue
        if step.status == StepStatus.RUNNING:
            # Dead workers are found by `rescue.peer_takeover`.
            step.wake_at = claiming.check_at(locked.now, capacity.lease_us)
        elif step.status == StepStatus.WAITING:
            _wake(tx, locked, step, capacity)


def _wake(tx: Connection, locked: LockedTask, step: StepRow, capacity: ClaimCapacity) -> None:
    if step.is_group:
        step.wake_at = None
        fanout.admit(tx, locked, step)
        return
    match step.wait:
        case Approval() | UnknownCall(approval_id=str()) | Work(approval_id=str()):
            approvals.check(tx, locked, step)
        case Work():
            work_expiry.check(tx, locked, step, capacity.answering)
        case Child(task_id=str() as child_id):
            status = child_tasks.ended_status(tx, child_id)
            if status is None:
                step.wake_at = locked.now + settlement.CHILD_CHECK_US
            else:
                transitions.wake(locked, step, {"status": status})
        case Timer():
            transitions.wake(locked, step)
        case _:
            transitions.wake(locked, step, {"expired": True})
