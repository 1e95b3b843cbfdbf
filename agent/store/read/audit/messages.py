"""The checker's reads about messages and the chat origins of tasks."""

from agent.store.db.database import Connection


def unsent_messages(connection: Connection) -> list[tuple[str, str]]:
    """Return (task, step) of `message` steps that succeeded here without a call that did."""
    rows = connection.query(
        "SELECT s.task_id, s.name FROM steps AS s"
        " WHERE s.kind = 'message' AND s.status = 'succeeded'"
        " AND (s.parallel_count IS NULL OR s.parallel_index >= 0)"
        # Steps that a retry kept did not run in this task.
        " AND EXISTS (SELECT 1 FROM events AS e WHERE e.task_id = s.task_id"
        " AND e.step_id = s.id AND e.type = 'step.succeeded')"
        " AND NOT EXISTS (SELECT 1 FROM tool_calls AS c JOIN idempotency_outcomes AS o"
        " ON o.tool_call_id = c.id WHERE c.task_id = s.task_id AND c.step_id = s.id"
        " AND o.status = 'succeeded' AND c.action LIKE 'message.%'"
        " AND c.action NOT LIKE 'message.operators%') ORDER BY s.task_id, s.name"
    )
    return [(str(task_id), str(name)) for task_id, name in rows]


def lost_origins(connection: Connection) -> list[tuple[str, str]]:
    """Return (task, task before it) where a chat's origin was not inherited."""
    rows = connection.query(
        "SELECT t.id, b.id FROM tasks AS t JOIN tasks AS b"
        " ON b.id = coalesce(t.parent_task_id, t.retry_of, t.forked_from)"
        " WHERE b.chat_origin IS NOT NULL"
        " AND (t.chat_origin IS NULL OR t.chat_origin <> b.chat_origin) ORDER BY t.id"
    )
    return [(str(task_id), str(before)) for task_id, before in rows]
