"""Reads about a database's health, for `agent doctor`."""

from typing import Any

from agent.core.state_machine import TASK_ENDED, TaskStatus
from agent.store.db.database import Connection
from agent.store.read.activity import expression


def try_writing(tx: Connection) -> None:
    """Check that the database is writable with a no-op UPDATE; raise `StoreError` if it is not."""
    tx.execute("UPDATE workers SET turn = turn WHERE id = ''")


def sqlite_version(connection: Connection) -> str:
    """Return the version of the SQLite library that has opened the file."""
    ((version,),) = connection.query("SELECT sqlite_version()")
    return str(version)


def task_counts(connection: Connection) -> dict[str, int]:
    """Return how many tasks there are in each status."""
    rows = connection.query("SELECT status, count(*) FROM tasks GROUP BY status ORDER BY status")
    return {str(status): int(count) for status, count in rows}


def retried_failures(connection: Connection) -> int:
    """Return how many failed tasks have a retry, or a retry of that, which succeeded."""
    # From the successes: the index of retries finds what they retried.
    ((count,),) = connection.query(
        "WITH RECURSIVE line(id) AS (SELECT retry_of FROM tasks"
        " WHERE retry_of IS NOT NULL AND status = 'succeeded'"
        " UNION SELECT t.retry_of FROM line AS l JOIN tasks AS t ON t.id = l.id"
        " WHERE t.retry_of IS NOT NULL)"
        " SELECT count(*) FROM line AS l JOIN tasks AS t ON t.id = l.id WHERE t.status = 'failed'"
    )
    return int(count)


def task_counts_up_to(connection: Connection, most: int) -> dict[str, int]:
    """Return how many tasks there are in each status, each counted up to a bound."""
    counts = {}
    for status in sorted(TaskStatus):
        ((count,),) = connection.query(
            "SELECT count(*) FROM (SELECT 1 FROM tasks WHERE status = :status LIMIT :most) AS counted",
            status=status.value,
            most=most,
        )
        if count:
            counts[status.value] = int(count)
    return counts


def open_task_counts(connection: Connection) -> dict[str, int]:
    """Return how many tasks that have not ended there are of each activity."""
    activity = expression(connection.sql, "t")
    rows = connection.query(
        f"SELECT {activity} AS activity, count(*) FROM tasks AS t"
        " WHERE t.status IN ('pending', 'running', 'paused') GROUP BY activity ORDER BY activity"
    )
    return {str(activity): int(count) for activity, count in rows}


def activity_counts(connection: Connection) -> dict[str, int]:
    """Return how many tasks there are of each activity, those that have ended included."""
    ended = {name: n for name, n in task_counts(connection).items() if name in TASK_ENDED}
    return open_task_counts(connection) | ended


def open_counts(connection: Connection) -> dict[str, int]:
    """Return how many tasks there are of each activity, without failures whose retry succeeded."""
    counts = activity_counts(connection)
    counts["failed"] = counts.get("failed", 0) - retried_failures(connection)
    return {activity: count for activity, count in counts.items() if count}


def open_step_counts(connection: Connection) -> dict[str, int]:
    """Return how many steps there are in each status, of tasks that have not ended."""
    rows = connection.query(
        "SELECT s.status, count(*) FROM tasks AS t JOIN steps AS s ON s.task_id = t.id"
        " WHERE t.status IN ('pending', 'running', 'paused') GROUP BY s.status"
    )
    return {str(status): int(count) for status, count in rows}


def pending_approvals(connection: Connection) -> int:
    """Return how many questions wait for a person."""
    ((count,),) = connection.query("SELECT count(*) FROM approvals WHERE status = 'pending'")
    return int(count)


def open_questions(connection: Connection) -> int:
    """Return how many questions wait for a person that do not ask about an unknown effect."""
    ((count,),) = connection.query(
        "SELECT count(*) FROM approvals WHERE status = 'pending' AND kind <> 'unknown'"
    )
    return int(count)


def unknown_steps(connection: Connection) -> list[str]:
    """Return the names of steps with an unknown effect that a person is asked about, or will be."""
    rows = connection.query(
        "SELECT name FROM steps WHERE id IN (SELECT step_id FROM approvals"
        " WHERE status = 'pending' AND kind = 'unknown' UNION"
        " SELECT s.id FROM tasks t JOIN steps s ON s.task_id = t.id"
        " JOIN tool_calls c ON c.step_id = s.id"
        " JOIN idempotency_outcomes o ON o.tool_call_id = c.id"
        " WHERE o.status = 'unknown' AND c.on_unknown = 'ask' AND s.status = 'pending'"
        " AND t.status IN ('running', 'paused')) ORDER BY name"
    )
    return [str(name) for (name,) in rows]


def spent(connection: Connection) -> tuple[int, int, int]:
    """Return (tokens, millionths of a dollar, milliseconds) that models have used on all days.

    These only grow: amounts reserved for unknown calls are not included.
    """
    ((tokens, microusd, ms),) = connection.query(
        "SELECT coalesce(sum(tokens_used), 0), coalesce(sum(microusd_used), 0),"
        " coalesce(sum(ms_used), 0) FROM daily_spend"
    )
    return int(tokens), int(microusd), int(ms)


def unknown_calls(connection: Connection) -> list[tuple[str, str, str]]:
    """Return (task, step's name, action) of unknown effects that steps wait on.

    An item of a group is named as commands name it: ``step[2]``.
    """
    rows = connection.query(
        "SELECT s.task_id, s.name, s.parallel_index, c.action FROM steps s"
        " JOIN tasks t ON t.id = s.task_id"
        " JOIN tool_calls c ON c.step_id = s.id"
        " JOIN idempotency_outcomes o ON o.idempotency_key = c.idempotency_key"
        " WHERE t.status IN ('running', 'paused') AND s.status = 'waiting'"
        " AND o.status = 'unknown' ORDER BY s.task_id, s.name, s.parallel_index LIMIT 100"
    )
    return [
        (str(task_id), f"{name}[{index}]" if index >= 0 else str(name), str(action))
        for task_id, name, index, action in rows
    ]


def stuck_tasks(connection: Connection) -> list[str]:
    """Return running tasks that wait on nothing and have no wake time: there should be none."""
    rows = connection.query(
        "SELECT t.id FROM tasks t WHERE t.status = 'running' AND t.next_wake_time IS NULL"
        " AND NOT EXISTS (SELECT 1 FROM steps s WHERE s.task_id = t.id"
        " AND s.status IN ('running', 'waiting')) ORDER BY t.id LIMIT 100"
    )
    return [str(task_id) for (task_id,) in rows]


def damage(connection: Connection) -> list[str]:
    """Return the problems that the database itself finds in its file; reads all of it."""
    if connection.sql.name != "sqlite":
        return []
    problems = [str(row[0]) for row in connection.query("PRAGMA integrity_check")]
    broken = connection.query("PRAGMA foreign_key_check")
    return [line for line in problems if line != "ok"] + [
        f"{len(broken)} rows refer to rows that are not there"
    ] * bool(broken)


def oldest_transaction_seconds(connection: Connection) -> float:
    """Return the age of the oldest open transaction on a PostgreSQL server.

    It holds back the event stream of all readers, and the removal of dead rows.
    """
    if connection.sql.name == "sqlite":
        return 0.0
    ((age,),) = connection.query(
        "SELECT coalesce(max(extract(epoch FROM clock_timestamp() - xact_start)), 0)::float8"
        " FROM pg_stat_activity WHERE xact_start IS NOT NULL AND pid <> pg_backend_pid()"
        " AND backend_type = 'client backend'"
    )
    return float(age)


def worker_rows(connection: Connection, limit: int) -> list[dict[str, Any]]:
    """Return workers with how many steps each runs: living ones first, then those that ended last."""
    names = ("id", "host", "process_id", "started_at", "ended_at", "is_dead", "running")
    rows = connection.query(
        "SELECT w.id, w.host, w.process_id, w.started_at, w.ended_at, w.dead,"
        " (SELECT count(*) FROM steps AS s WHERE s.owner = w.id) FROM workers AS w"
        " ORDER BY w.dead, w.started_at DESC LIMIT :limit",
        limit=limit,
    )
    return [dict(zip(names, row, strict=True)) for row in rows]


def database_bytes(connection: Connection) -> int:
    """Return the size of the database: the pages of the file, or what PostgreSQL reports."""
    if connection.sql.name == "sqlite":
        ((pages,),) = connection.query("PRAGMA page_count")
        ((size,),) = connection.query("PRAGMA page_size")
        return int(pages) * int(size)
    ((size,),) = connection.query("SELECT pg_database_size(current_database())")
    return int(size)


def events_behind(connection: Connection, event_id: int, most: int) -> int:
    """Return how many events follow one, counted up to a bound."""
    rows = connection.query(
        "SELECT count(*) FROM (SELECT 1 FROM events WHERE id > :id LIMIT :most) AS later",
        id=event_id,
        most=most,
    )
    return int(rows[0][0])
