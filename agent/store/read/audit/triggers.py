"""Questions about triggers and their firings, for the checker. Each is one statement: one moment."""

from typing import Final

from agent.store.db.database import Connection
from agent.store.engine.firing_rows import DAY_US
from agent.store.engine.reads import Rows

_STARTED: Final = "('started', 'late')"

# A prune removes succeeded tasks first, in the order of their ends, unless others refer to them. So a
# task that is missing was pruned only if no such task is left that ended before its firing.
_OLDEST_PRUNABLE: Final = (
    "SELECT min(w.ended_at) FROM tasks AS w WHERE w.status = 'succeeded'"
    " AND w.parent_task_id IS NULL AND w.retry_of IS NULL AND w.forked_from IS NULL"
    " AND NOT EXISTS (SELECT 1 FROM tasks AS r WHERE r.parent_task_id = w.id"
    " OR r.retry_of = w.id OR r.forked_from = w.id)"
)


def missing_tasks(connection: Connection) -> Rows:
    """Return (trigger, key, task) of firings whose task is missing and was not pruned."""
    return connection.query(
        "SELECT f.trigger_id, f.key, f.task_id FROM firings AS f"
        f" LEFT JOIN tasks AS k ON k.id = f.task_id WHERE f.status IN {_STARTED}"
        f" AND k.id IS NULL AND f.recorded_at > ({_OLDEST_PRUNABLE})"
        " ORDER BY f.trigger_id, f.key"
    )


def foreign_tasks(connection: Connection) -> Rows:
    """Return (trigger, key, task, the task's trigger) of firings with a task of another trigger."""
    return connection.query(
        "SELECT f.trigger_id, f.key, f.task_id, k.trigger_id FROM firings AS f"
        " JOIN tasks AS k ON k.id = f.task_id"
        " WHERE k.trigger_id IS NULL OR k.trigger_id <> f.trigger_id ORDER BY f.trigger_id, f.key"
    )


def tasks_without_firing(connection: Connection) -> Rows:
    """Return (task, trigger) of tasks that a trigger started and no firing names."""
    return connection.query(
        "SELECT k.id, k.trigger_id FROM tasks AS k WHERE k.trigger_id IS NOT NULL"
        " AND k.retry_of IS NULL AND NOT EXISTS (SELECT 1 FROM firings AS f"
        " WHERE f.trigger_id = k.trigger_id AND f.task_id = k.id) ORDER BY k.id"
    )


def shared_tasks(connection: Connection) -> Rows:
    """Return (task, count) of tasks that several firings name which are no batch of items."""
    return connection.query(
        "SELECT task_id, count(*) FROM firings WHERE task_id IS NOT NULL GROUP BY task_id"
        " HAVING count(*) > 1 AND (count(nominal_at) > 0"
        " OR min(recorded_at) <> max(recorded_at)"
        " OR count(DISTINCT coalesce(run_id, '')) > 1) ORDER BY task_id"
    )


def queued(connection: Connection) -> Rows:
    """Return (trigger, its status, run, count, those with an input, without a time) of queued runs."""
    return connection.query(
        "SELECT f.trigger_id, t.status, f.run_id, count(*), count(f.input),"
        " count(CASE WHEN f.due_at IS NULL OR f.workflow_version IS NULL THEN 1 END)"
        " FROM firings AS f JOIN triggers AS t ON t.id = f.trigger_id WHERE f.status = 'queued'"
        " GROUP BY f.trigger_id, t.status, f.run_id ORDER BY f.trigger_id, f.run_id"
    )


def bad_ranges(connection: Connection) -> Rows:
    """Return (trigger, key) of ranges that span nothing, and of single firings that count several."""
    return connection.query(
        "SELECT trigger_id, key FROM firings WHERE (until_at IS NULL) <> (count IS NULL)"
        " OR (until_at IS NOT NULL AND (status NOT IN ('missed', 'skipped') OR count < 1"
        " OR nominal_at IS NULL OR nominal_at > until_at OR (count > 1 AND nominal_at = until_at))) ORDER BY trigger_id, key"
    )


def kept_since(connection: Connection, trigger_id: str) -> int:
    """Return a time since when no firing of a trigger was pruned.

    A prune removes firings without a task from the oldest on, and none of the last day. So the oldest
    one that is left bounds what was removed.
    """
    rows = connection.query(
        f"SELECT {connection.sql.now_us}, min(f.recorded_at) FROM firings AS f"
        " WHERE f.trigger_id = :id AND f.status <> 'queued' AND f.recorded_at <"
        " (SELECT max(n.recorded_at) FROM firings AS n WHERE n.trigger_id = :id)"
        " AND NOT EXISTS (SELECT 1 FROM tasks AS k WHERE k.id = f.task_id)",
        id=trigger_id,
    )
    now, oldest = rows[0]
    yesterday = int(now) - DAY_US
    return yesterday if oldest is None else min(yesterday, int(oldest))


def spans(connection: Connection, trigger_id: str, since: int) -> list[tuple[int, int]]:
    """Return the instants with a fate that are not before `since`, as (first, last), in order."""
    rows = connection.query(
        "SELECT nominal_at, coalesce(until_at, nominal_at) FROM firings WHERE trigger_id = :id"
        " AND nominal_at IS NOT NULL AND coalesce(until_at, nominal_at) >= :since"
        " ORDER BY nominal_at",
        id=trigger_id,
        since=since,
    )
    return [(int(first), int(last)) for first, last in rows]
