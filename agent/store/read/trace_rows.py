"""The columns of a task that its trace shows."""

from dataclasses import dataclass
from typing import Any

from agent.store.db.database import Connection
from agent.store.db.json_values import decode, encode


@dataclass(frozen=True, slots=True)
class TracedTask:
    """A task, as its trace shows it."""

    id: str
    workflow: str
    version: int
    status: str
    trigger: object
    error: object
    created_at: int
    ended_at: int | None
    retry_of: str | None
    parent_id: str | None
    parent_trigger: object
    """The trigger of the parent: it decides the parent's trace."""


def traced_tasks(connection: Connection, task_ids: list[str]) -> dict[str, TracedTask]:
    """Return tasks by their ids; those that were removed are missing."""
    rows = connection.query(
        "SELECT t.id, t.workflow_name, t.workflow_version, t.status, t.trigger, t.error,"
        " t.created_at, t.ended_at, t.retry_of, t.parent_task_id, p.trigger FROM tasks AS t"
        " LEFT JOIN tasks AS p ON p.id = t.parent_task_id"
        f" WHERE t.id IN {connection.sql.ids()}",
        ids=encode(task_ids, "ids"),
    )
    return {row[0]: _read(*row) for row in rows}


def _read(*columns: Any) -> TracedTask:
    task_id, workflow, version, status, trigger, error, *times, parent_id, parent_trigger = columns
    created_at, ended_at, retry_of = times
    return TracedTask(
        task_id,
        workflow,
        version,
        status,
        decode(trigger),
        decode(error),
        created_at,
        ended_at,
        retry_of,
        parent_id,
        decode(parent_trigger),
    )
