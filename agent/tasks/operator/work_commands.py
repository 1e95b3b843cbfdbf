"""The operator's commands on the work of external workers, and on the snapshots of tasks."""

from agent.core.plain_json import Json
from agent.core.redaction import everywhere
from agent.core.state_machine import TASK_ENDED
from agent.steps.types.outcome import StepError
from agent.store.db import json_values
from agent.store.db.database import Database
from agent.store.read import work_views
from agent.tasks.errors import NotFoundError, RefusedError
from agent.tasks.operator.operator import CommandResult, Operator
from agent.tasks.rules import snapshots


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
    text = json_values.encode(everywhere.redact_value(value), "value")
    label = None if label is None else everywhere.redact(label)
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
