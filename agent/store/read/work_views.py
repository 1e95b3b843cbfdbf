"""What people see of external workers: queues, leases and dead letters."""

from typing import Any

from agent.store.db.database import Connection
from agent.store.db.json_values import set_of
from agent.store.engine.reads import Rows

_DEAD = """
    FROM work AS w JOIN steps AS s ON s.id = w.step_id JOIN tasks AS t ON t.id = w.task_id
    WHERE w.status IN ('failed', 'expired') AND s.status = 'failed' AND t.status = 'failed'
    AND NOT EXISTS (SELECT 1 FROM work AS later WHERE later.step_id = w.step_id AND later.id > w.id)
    AND NOT EXISTS (SELECT 1 FROM tasks AS again WHERE again.retry_of = t.id)"""
"""The last work of a failed step, unless its task was retried."""


def queue_counts(connection: Connection) -> Rows:
    """Return (queue, status, count, oldest creation) of the work that is open."""
    return connection.query(
        "SELECT queue, status, count(*), min(created_at) FROM work"
        " WHERE status = 'queued' GROUP BY queue, status"
        " UNION ALL SELECT queue, status, count(*), min(created_at) FROM work"
        " WHERE status IN ('leased', 'running', 'asked') GROUP BY queue, status"
    )


def dead_counts(connection: Connection) -> Rows:
    """Return (queue, count) of dead letters."""
    return connection.query(f"SELECT w.queue, count(*) {_DEAD} GROUP BY w.queue")


def leases(connection: Connection, most: int) -> Rows:
    """Return the oldest leases: (queue, id, task, step, item, worker, status, attempt, times)."""
    return connection.query(
        "SELECT w.queue, w.id, w.task_id, s.name, w.parallel_index, w.leased_by, w.status,"
        " w.attempt, w.leased_at, w.started_at, w.lease_expires_at"
        " FROM work AS w JOIN steps AS s ON s.id = w.step_id"
        " WHERE w.status IN ('leased', 'running') ORDER BY w.queue, w.leased_at LIMIT :most",
        most=most,
    )


def leases_over(connection: Connection, now: int, most: int) -> Rows:
    """Return leases whose own time is over, those of paused tasks last.

    The columns are lease id, work id, task id, queue, step, item, worker, attempt and expiry.
    """
    return connection.query(
        "SELECT w.lease_id, w.id, w.task_id, w.queue, s.name, w.parallel_index, w.leased_by, w.attempt,"
        " w.lease_expires_at"
        " FROM work AS w JOIN steps AS s ON s.id = w.step_id JOIN tasks AS t ON t.id = w.task_id"
        " WHERE w.status IN ('leased', 'running')"
        " AND (w.lease_expires_at <= :now OR w.start_by <= :now OR w.run_by <= :now)"
        " ORDER BY CASE WHEN t.status = 'running' THEN 0 ELSE 1 END, w.lease_expires_at, w.id"
        " LIMIT :most",
        now=now,
        most=most,
    )


def lease_holders(connection: Connection, work_ids: list[str]) -> dict[str, tuple[str, str]]:
    """Return the state and the worker of each work that has a lease, by its id."""
    rows = connection.query(
        f"SELECT id, status, leased_by FROM work WHERE id IN {connection.sql.ids()}"
        " AND status IN ('leased', 'running')",
        ids=set_of(work_ids),
    )
    return {work_id: (status, worker) for work_id, status, worker in rows}


def dead_letters(
    connection: Connection,
    queue: str | None,
    code: str | None,
    before: str | None,
    most: int,
) -> Rows:
    """Return dead letters, the newest first."""
    conditions, parameters = "", {}
    if queue is not None:
        conditions += " AND w.queue = :queue"
        parameters["queue"] = queue
    if code is not None:
        conditions += f" AND {connection.sql.position}(s.error, :code) > 0"
        parameters["code"] = f'"code": "{code}"'
    if before is not None:
        conditions += " AND w.id < :before"
        parameters["before"] = before
    return connection.query(
        "SELECT w.id, w.task_id, t.workflow_name, s.name, w.parallel_index, w.queue, s.attempt,"
        f" s.error, s.ended_at {_DEAD}{conditions} ORDER BY w.id DESC LIMIT :most",
        most=most,
        **parameters,
    )


def dead_letter_task(connection: Connection, work_id: str) -> str | None:
    """Return the task of work that ended without success."""
    rows = connection.query(
        "SELECT task_id FROM work WHERE id = :id AND status IN ('failed', 'expired')", id=work_id
    )
    return None if not rows else str(rows[0][0])


def lease_facts(connection: Connection, work_id: str) -> dict[str, Any] | None:
    """Return what decides the answer to a heartbeat."""
    names = (
        "status",
        "lease_id",
        "queue",
        "lease_us",
        "lease_expires_at",
        "task_id",
        "task_status",
    )
    rows = connection.query(
        "SELECT w.status, w.lease_id, w.queue, w.lease_us, w.lease_expires_at, w.task_id, t.status"
        " FROM work AS w JOIN tasks AS t ON t.id = w.task_id WHERE w.id = :id",
        id=work_id,
    )
    return dict(zip(names, rows[0], strict=True)) if rows else None


def step_names(connection: Connection, step_ids: list[str]) -> dict[str, str]:
    """Return the names of steps by their ids."""
    rows = connection.query(
        f"SELECT id, name FROM steps WHERE id IN {connection.sql.ids()}", ids=set_of(step_ids)
    )
    return dict(rows)


def definition_of(connection: Connection, task_id: str) -> tuple[str, int] | None:
    """Return the workflow and its version of a task."""
    rows = connection.query(
        "SELECT workflow_name, workflow_version FROM tasks WHERE id = :id", id=task_id
    )
    return (str(rows[0][0]), int(rows[0][1])) if rows else None
