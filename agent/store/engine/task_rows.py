"""Reads of single tasks, beside those that lock them (`reads`)."""

import json
from collections.abc import Sequence
from functools import cache

from agent.store.db.database import Connection
from agent.store.db.dialect import Sql
from agent.store.db.json_values import set_of


def status_of(tx: Connection, task_id: str) -> str | None:
    """Return a task's status; None if there is no such task."""
    rows = tx.query("SELECT status FROM tasks WHERE id = :id", id=task_id)
    return str(rows[0][0]) if rows else None


def input_of(tx: Connection, task_id: str) -> tuple[str, str | None, int]:
    """Return (input, trigger, workflow version) of a task; the first two are stored JSON."""
    ((text, trigger, version),) = tx.query(
        "SELECT input, trigger, workflow_version FROM tasks WHERE id = :id", id=task_id
    )
    return text, trigger, version


def chat_origin_of(tx: Connection, task_id: str) -> str | None:
    """Return where in a chat a task was started, as it is stored."""
    ((text,),) = tx.query("SELECT chat_origin FROM tasks WHERE id = :id", id=task_id)
    return None if text is None else str(text)


def workflow_of(tx: Connection, task_id: str) -> tuple[str, int]:
    """Return (name, version) of the workflow that a task executes."""
    ((name, version),) = tx.query(
        "SELECT workflow_name, workflow_version FROM tasks WHERE id = :id", id=task_id
    )
    return name, version


def started_at(tx: Connection, task_id: str) -> int | None:
    """Return when a task started; None before that."""
    ((instant,),) = tx.query("SELECT started_at FROM tasks WHERE id = :id", id=task_id)
    return None if instant is None else int(instant)


def pause_of(tx: Connection, task_id: str) -> tuple[str | None, str | None, str | None]:
    """Return (kind, reason, command) of a task's pause; all None for a task that is not paused."""
    ((kind, reason, command),) = tx.query(
        "SELECT pause_kind, pause_reason, pause_command FROM tasks WHERE id = :id", id=task_id
    )
    return kind, reason, command


def ending_of(tx: Connection, task_id: str) -> tuple[str, str | None, str, int] | None:
    """Return (status, error, workflow, version) of a task; None if there is no such task."""
    rows = tx.query(
        "SELECT status, error, workflow_name, workflow_version FROM tasks WHERE id = :id",
        id=task_id,
    )
    return rows[0] if rows else None


def task_by_dedupe_key(tx: Connection, key: str) -> str | None:
    """Return the task that was created under a key."""
    rows = tx.query("SELECT id FROM tasks WHERE dedupe_key = :key", key=key)
    return str(rows[0][0]) if rows else None


@cache
def _existing(sql: Sql) -> str:
    return f"SELECT id FROM tasks WHERE id IN {sql.ids()}"


def existing_tasks(tx: Connection, task_ids: Sequence[str]) -> set[str]:
    """Return which of the tasks exist."""
    return {str(row[0]) for row in tx.query(_existing(tx.sql), ids=set_of(task_ids))}


def children(tx: Connection, task_id: str) -> list[str]:
    """Return the child tasks that a task's steps have started."""
    rows = tx.query(
        "SELECT t.id FROM steps AS s JOIN tasks AS t ON t.parent_step_id = s.id"
        " WHERE s.task_id = :task_id AND s.kind IN ('workflow', 'agent') ORDER BY t.id",
        task_id=task_id,
    )
    return [str(child) for (child,) in rows]


def orphans(connection: Connection) -> list[str]:
    """Return open tasks whose parents have ended or no longer wait for them."""
    rows = connection.query(
        "SELECT c.id FROM tasks AS c JOIN tasks AS p ON p.id = c.parent_task_id"
        " JOIN steps AS s ON s.id = c.parent_step_id"
        " WHERE c.status IN ('pending', 'running', 'paused')"
        " AND (p.status IN ('succeeded', 'failed', 'canceled')"
        " OR s.status IN ('succeeded', 'failed', 'skipped'))"
    )
    return [str(task_id) for (task_id,) in rows]


def has_event_by(tx: Connection, task_id: str, call_key: str) -> bool:
    """Whether a call of an agent has changed a task: its key stands in the event's data."""
    rows = tx.query(
        "SELECT 1 FROM events WHERE task_id = :id AND type IN"
        " ('task.paused', 'task.resumed', 'task.canceled')"
        f" AND {tx.sql.position}(data, :key) > 0 LIMIT 1",
        id=task_id,
        key=call_key,
    )
    return bool(rows)


def starts_above(connection: Connection, task_id: str) -> int:
    """Return how many agents have started one another before a task, by its root's trigger."""
    rows = connection.query(
        "WITH RECURSIVE line(id, parent, trigger) AS (SELECT id, parent_task_id, trigger FROM tasks"
        " WHERE id = :id UNION ALL SELECT t.id, t.parent_task_id, t.trigger FROM line AS l"
        " JOIN tasks AS t ON t.id = l.parent) SELECT trigger FROM line WHERE parent IS NULL",
        id=task_id,
    )
    trigger = json.loads(rows[0][0]) if rows and rows[0][0] else None
    depth = trigger.get("depth") if isinstance(trigger, dict) else None
    return depth if isinstance(depth, int) else 0
