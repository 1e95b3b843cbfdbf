"""Queues, leases, dead letters and snapshots as people and programs see them."""

import json
from typing import Any, Final

from agent.core.clock import to_iso
from agent.store.db.database import Connection
from agent.store.engine import snapshot_rows, task_rows
from agent.store.engine.snapshot_rows import SnapshotRow
from agent.store.read import work_views
from agent.tasks.errors import NotFoundError

MOST_LEASES: Final = 500
"""The most leases that one document of all queues lists."""

Document = dict[str, Any]


def queues(connection: Connection) -> Document:
    """Return every queue that has open work or dead letters, by name."""
    by_queue: dict[str, Document] = {}
    for queue, status, count, oldest in work_views.queue_counts(connection):
        document = by_queue.setdefault(queue, _empty(queue))
        document[status] = int(count)
        if status == "queued":
            document["oldest_at"] = to_iso(int(oldest))
    for queue, count in work_views.dead_counts(connection):
        by_queue.setdefault(queue, _empty(queue))["dead"] = int(count)
    for queue, *lease in work_views.leases(connection, MOST_LEASES):
        document = by_queue.setdefault(queue, _empty(queue))
        document["leases"].append(_lease(lease))
    for document in by_queue.values():
        document["claimants"] = sorted({lease["worker"] for lease in document["leases"]})
    return {"queues": [by_queue[name] for name in sorted(by_queue)]}


def _empty(queue: str) -> Document:
    counts = dict.fromkeys(("queued", "leased", "running", "asked", "dead"), 0)
    return {"queue": queue, **counts, "oldest_at": None, "claimants": [], "leases": []}


def _lease(values: list[Any]) -> Document:
    work_id, task, step, item, worker, status, attempt, leased_at, started_at, expires_at = values
    return {
        "id": work_id,
        "task": task,
        "step": step,
        "parallel_index": None if item < 0 else item,
        "worker": worker,
        "state": status,
        "attempt": attempt,
        "leased_at": to_iso(leased_at),
        "started_at": None if started_at is None else to_iso(started_at),
        "expires_at": to_iso(expires_at),
    }


def dead_letters(
    connection: Connection,
    *,
    queue: str | None = None,
    code: str | None = None,
    before: str | None = None,
    most: int = 100,
) -> list[Document]:
    """Return work whose step has failed and was not requeued, the newest first."""
    rows = work_views.dead_letters(connection, queue, code, before, most)
    return [
        {
            "id": work_id,
            "task": task,
            "workflow": workflow,
            "step": step,
            "parallel_index": None if item < 0 else item,
            "queue": its_queue,
            "attempts": attempts,
            "error": json.loads(error) if error is not None else None,
            "failed_at": to_iso(failed_at),
        }
        for work_id, task, workflow, step, item, its_queue, attempts, error, failed_at in rows
    ]


def snapshot_page(
    connection: Connection, task_id: str, *, after: str | None, most: int
) -> list[Document]:
    """Return snapshots of a task behind a cursor, the oldest first."""
    _check_task(connection, task_id)
    rows = snapshot_rows.page(connection, task_id, after or "", most)
    return _documents(connection, [SnapshotRow(*row) for row in rows])


def latest_snapshot(connection: Connection, task_id: str, label: str | None = None) -> Document:
    """Return the newest snapshot of a task; raise `NotFoundError` if there is none."""
    _check_task(connection, task_id)
    row = snapshot_rows.latest(connection, task_id, label)
    if row is None:
        of_label = "" if label is None else f" with the label {label!r}"
        raise NotFoundError(f"the task {task_id} has no snapshot{of_label}")
    return _documents(connection, [row])[0]


def snapshot(connection: Connection, task_id: str, snapshot_id: str) -> Document:
    """Return one snapshot of a task."""
    row = snapshot_rows.find(connection, task_id, snapshot_id)
    if row is None:
        raise NotFoundError(f"the task {task_id} has no snapshot {snapshot_id}")
    return _documents(connection, [row])[0]


def _check_task(connection: Connection, task_id: str) -> None:
    if not task_rows.existing_tasks(connection, [task_id]):
        raise NotFoundError(f"there is no task {task_id}")


def _documents(connection: Connection, rows: list[SnapshotRow]) -> list[Document]:
    step_ids = sorted({row.step_id for row in rows if row.step_id is not None})
    names = work_views.step_names(connection, step_ids) if step_ids else {}
    return [
        {
            "id": row.id,
            "task": row.task_id,
            "step": None if row.step_id is None else names.get(row.step_id),
            "parent": row.parent,
            "label": row.label,
            "value": json.loads(row.value),
            "by": row.written_by,
            "created_at": to_iso(row.created_at),
        }
        for row in rows
    ]
