"""The present load: running and queued steps."""

from dataclasses import dataclass
from typing import Any

from agent.store.db.database import Connection


@dataclass(frozen=True, slots=True)
class RunningStep:
    """A step that a worker runs."""

    task_id: str
    workflow: str
    name: str
    parallel_index: int
    kind: str
    attempt: int
    worker: str
    started_at: int


def workers(connection: Connection) -> list[tuple[Any, ...]]:
    """Return (id, host, process id, started at, running steps) of workers not declared dead."""
    return connection.query(
        "SELECT w.id, w.host, w.process_id, w.started_at,"
        " (SELECT count(*) FROM steps AS s WHERE s.owner = w.id)"
        " FROM workers AS w WHERE w.dead = 0 ORDER BY w.started_at, w.id"
    )


def longest_running(connection: Connection, limit: int) -> list[RunningStep]:
    """Return the steps that have run for longest, the longest first."""
    rows = connection.query(
        "SELECT s.task_id, t.workflow_name, s.name, s.parallel_index, s.kind, s.attempt, s.owner,"
        " s.started_at FROM steps AS s JOIN tasks AS t ON t.id = s.task_id"
        " WHERE s.owner IS NOT NULL ORDER BY s.started_at, s.id LIMIT :limit",
        limit=limit,
    )
    return [RunningStep(*row) for row in rows]


@dataclass(frozen=True, slots=True)
class IsolatedStep:
    """A step that runs with nothing beside it, or that must."""

    task_id: str
    workflow: str
    name: str
    parallel_index: int
    started_at: int | None
    wake_at: int | None


_ISOLATED = (
    "SELECT s.task_id, t.workflow_name, s.name, s.parallel_index, s.started_at, s.wake_at"
    " FROM tasks AS t JOIN steps AS s ON s.task_id = t.id"
)


def isolated(connection: Connection, mark: int) -> list[IsolatedStep]:
    """Return the steps that run isolated, the last claimed first: at most one for each worker."""
    rows = connection.query(
        f"{_ISOLATED} WHERE s.owner IS NOT NULL AND s.alone = :mark ORDER BY s.started_at DESC",
        mark=mark,
    )
    return [IsolatedStep(*row) for row in rows]


def due_isolated(connection: Connection, mark: int, now: int, limit: int) -> list[IsolatedStep]:
    """Return the due steps that must run isolated, those longest due first."""
    rows = connection.query(
        f"{_ISOLATED} WHERE t.status = 'running' AND t.next_wake_time <= :now"
        " AND s.wake_at <= :now AND s.status = 'pending' AND s.alone = :mark"
        " ORDER BY s.wake_at, s.id LIMIT :limit",
        mark=mark,
        now=now,
        limit=limit,
    )
    return [IsolatedStep(*row) for row in rows]


def due(connection: Connection, now: int) -> tuple[int, int | None]:
    """Return how many tasks are due, and since when the oldest is."""
    ((count, oldest),) = connection.query(
        "SELECT count(*), min(next_wake_time) FROM tasks WHERE status = 'running'"
        " AND next_wake_time <= :now",
        now=now,
    )
    return int(count), None if oldest is None else int(oldest)
