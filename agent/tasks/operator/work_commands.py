"""The operator's commands on the work of external workers, and on the snapshots of tasks."""

from agent.core.plain_json import Json
from agent.core.state_machine import TASK_ENDED, StepStatus, WorkStatus
from agent.core.waits import Work
from agent.steps.types.outcome import StepError
from agent.store.db import json_values
from agent.store.db.database import Database
from agent.store.engine import work_rows
from agent.store.read import work_views
from agent.tasks.errors import NotFoundError, RefusedError
from agent.tasks.operator.operator import CommandResult, Operator
from agent.tasks.rules import snapshots
from agent.tasks.rules.external_work import work_leases
from agent.tasks.state import transitions


def requeue_dead(
    operator: Operator,
    database: Database,
    work_id: str,
    not_before: int | None = None,
    reason: str | None = None,
) -> CommandResult:
    """Retry the task of a dead letter: succeeded steps are kept, and attempts count from one again."""
    with database.connect("reader") as connection:
        task_id = work_views.dead_letter_task(connection, work_id)
    if task_id is None:
        raise NotFoundError(f"there is no dead letter {work_id}")
    return operator.retry(task_id, not_before=not_before, reason=reason)


def resume_work(
    operator: Operator,
    database: Database,
    work_id: str,
    value: Json = None,
    reason: str | None = None,
    by: str = "the operator",
) -> CommandResult:
    """Put work back into its queue whose worker waits for a person, without that person's answer."""
    with database.connect("reader") as connection:
        row = work_rows.find(connection, [work_id]).get(work_id)
    if row is None:
        raise NotFoundError(f"there is no work {work_id}")
    with operator.changing(row.task_id) as (tx, locked):
        locked.load(tx, [(row.step_index, row.parallel_index)])
        step = locked.steps.get((row.step_index, row.parallel_index))
        work_leases.load(tx, locked, [work_id])
        row = locked.work[work_id]
        is_parked = row.status == WorkStatus.ASKED and locked.task.status not in TASK_ENDED
        if step is None or step.status != StepStatus.WAITING or not is_parked:
            raise RefusedError(f"the work {work_id} does not wait for a person: it is {row.status}")
        assert isinstance(step.wait, Work)
        transitions.withdraw(locked, step, reason or "resumed")
        answer = {"status": "resumed", "value": value, "by": by, "comment": reason}
        work_leases.unpark(locked, step, row, {"question": None, **answer})
    return CommandResult(True, f"queued again in {row.queue!r}", row.task_id)


def append_snapshot(
    operator: Operator,
    task_id: str,
    value: Json,
    label: str | None = None,
    parent: str | None = None,
    by: str = "the operator",
    client_token: str | None = None,
) -> str:
    """Append a snapshot to a task that has not ended; return its id.

    A repetition of the same caller with the same token gets the id of the first.
    """
    text = json_values.encode(value, "value")
    new = snapshots.NewSnapshot(text, label, parent, snapshots.token_of(by, client_token))
    with operator.changing(task_id) as (tx, locked):
        appended = snapshots.repeated(tx, locked, new)
        if appended is None and locked.task.status in TASK_ENDED:
            raise RefusedError(f"the task has {locked.task.status}: it takes no more snapshots")
        if appended is None:
            appended = snapshots.append(tx, locked, None, new, by)
        if isinstance(appended, StepError):
            raise RefusedError(appended.message)
    return appended
