"""Questions about the work of external workers, for the checker. Each is one statement: one moment."""

from typing import Final

from agent.store.db.database import Connection
from agent.store.engine.reads import Rows

_OPEN: Final = "('queued', 'leased', 'running', 'asked')"
_LEASED: Final = "('leased', 'running')"
_NAMED: Final = "'{\"work\": \"' || w.id || '\"'"
"""How the wait of a step on its work begins, as it is stored."""


def several_open(connection: Connection) -> Rows:
    """Return (task, step, count) of steps with more than one piece of open work."""
    return connection.query(
        f"SELECT task_id, step_id, count(*) FROM work WHERE status IN {_OPEN}"
        " GROUP BY task_id, step_id HAVING count(*) > 1 ORDER BY step_id"
    )


def shared_leases(connection: Connection) -> Rows:
    """Return (lease, count) of leases that more than one piece of work has or had."""
    return connection.query(
        "SELECT lease, count(DISTINCT id) FROM (SELECT lease_id AS lease, id FROM work"
        " WHERE lease_id IS NOT NULL UNION ALL SELECT last_lease_id, id FROM work"
        " WHERE last_lease_id IS NOT NULL) AS held GROUP BY lease HAVING count(DISTINCT id) > 1"
        " ORDER BY lease"
    )


def broken_leases(connection: Connection) -> Rows:
    """Return (task, work, status) of work with a part of a lease, or with a lease out of its states."""
    return connection.query(
        "SELECT task_id, id, status FROM work WHERE"
        f" (status IN {_LEASED}) <> (lease_id IS NOT NULL)"
        f" OR (status IN {_LEASED}) <> (leased_by IS NOT NULL)"
        f" OR (status IN {_LEASED}) <> (lease_expires_at IS NOT NULL)"
        " OR (status = 'asked') <> (approval_id IS NOT NULL)"
        " OR (status = 'running' AND started_at IS NULL) ORDER BY id"
    )


def unwanted_work(connection: Connection) -> Rows:
    """Return (task, work, status, step's status) of open work that no step of a living task waits on."""
    return connection.query(
        "SELECT w.task_id, w.id, w.status, s.status FROM work AS w"
        " JOIN tasks AS t ON t.id = w.task_id LEFT JOIN steps AS s ON s.id = w.step_id"
        f" WHERE w.status IN {_OPEN} AND (s.id IS NULL OR s.status <> 'waiting'"
        f" OR {connection.sql.position}(s.waiting_on, {_NAMED}) <> 1"
        " OR s.attempt <> w.attempt"
        " OR t.status IN ('succeeded', 'failed', 'canceled')) ORDER BY w.id"
    )


def missing_work(connection: Connection) -> Rows:
    """Return (task, step) of waiting steps whose work is not open."""
    return connection.query(
        "SELECT s.task_id, s.name FROM steps AS s JOIN tasks AS t ON t.id = s.task_id"
        " WHERE s.status = 'waiting' AND s.kind = 'worker'"
        " AND t.status IN ('pending', 'running', 'paused')"
        f" AND {connection.sql.position}(s.waiting_on, '{{\"work\"') = 1"
        f" AND NOT EXISTS (SELECT 1 FROM work AS w WHERE w.step_id = s.id AND w.status IN {_OPEN}"
        f" AND {connection.sql.position}(s.waiting_on, {_NAMED}) = 1) ORDER BY s.id"
    )


def unwatched_leases(connection: Connection) -> Rows:
    """Return (task, work) of leases in running tasks that nothing checks."""
    return connection.query(
        "SELECT w.task_id, w.id FROM work AS w JOIN steps AS s ON s.id = w.step_id"
        f" JOIN tasks AS t ON t.id = w.task_id WHERE w.status IN {_LEASED}"
        " AND t.status = 'running' AND s.status = 'waiting'"
        " AND s.wake_at IS NULL ORDER BY w.id"
    )


def exceeded_attempts(connection: Connection) -> Rows:
    """Return (task, step, attempt, maximum) of work that began in an attempt beyond the maximum."""
    return connection.query(
        "SELECT w.task_id, s.name, w.attempt, s.max_attempts FROM work AS w"
        " JOIN steps AS s ON s.id = w.step_id"
        " WHERE w.attempt > s.max_attempts AND w.leased_at IS NOT NULL ORDER BY w.id"
    )


def repeated_attempts(connection: Connection) -> Rows:
    """Return (task, step, attempt, count) of attempts that ended without success more than once."""
    return connection.query(
        "SELECT w.task_id, s.name, w.attempt, count(*) FROM work AS w"
        " JOIN steps AS s ON s.id = w.step_id WHERE w.status IN ('failed', 'expired')"
        " GROUP BY w.task_id, s.name, w.step_id, w.attempt HAVING count(*) > 1 ORDER BY w.step_id"
    )


def unfounded_results(connection: Connection) -> Rows:
    """Return (task, step, step's status) of completed work whose step did not succeed with it.

    A step with `set_state` goes on from the result by itself, and may fail or end with its task.
    """
    return connection.query(
        "SELECT w.task_id, s.name, s.status FROM work AS w JOIN steps AS s ON s.id = w.step_id"
        " WHERE w.status = 'completed' AND w.call_id IS NULL AND s.status <> 'succeeded'"
        " ORDER BY w.id"
    )


def unrecorded_beginnings(connection: Connection) -> Rows:
    """Return (task, step) of work that is a call, began, and has no call on record."""
    return connection.query(
        "SELECT w.task_id, s.name FROM work AS w JOIN steps AS s ON s.id = w.step_id"
        " WHERE w.intent IS NOT NULL AND w.started_at IS NOT NULL AND NOT EXISTS"
        " (SELECT 1 FROM tool_calls AS c WHERE c.id = w.call_id AND c.step_id = w.step_id)"
        " ORDER BY w.id"
    )


def bad_snapshots(connection: Connection) -> Rows:
    """Return (task, snapshot) of snapshots that continue none of their task's earlier ones."""
    return connection.query(
        "SELECT c.task_id, c.id FROM context_snapshots AS c WHERE c.parent IS NOT NULL"
        " AND NOT EXISTS (SELECT 1 FROM context_snapshots AS p WHERE p.id = c.parent"
        " AND p.task_id = c.task_id AND p.id < c.id) ORDER BY c.id"
    )


def unannounced_snapshots(connection: Connection) -> Rows:
    """Return (task, snapshots, events) of tasks whose snapshots and their events differ in number."""
    return connection.query(
        "SELECT t.id, t.snapshots, count(e.id) FROM"
        " (SELECT task_id AS id, count(*) AS snapshots FROM context_snapshots GROUP BY task_id) AS t"
        " LEFT JOIN events AS e ON e.task_id = t.id AND e.type = 'context_snapshot.appended'"
        " GROUP BY t.id, t.snapshots HAVING count(e.id) <> t.snapshots ORDER BY t.id"
    )
