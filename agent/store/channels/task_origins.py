"""Reads about tasks that were started in a chat."""

from typing import Any

from agent.core.chat_origin import ChatOrigin, read_origin
from agent.store.db.database import Connection
from agent.store.db.json_values import decode


def origin_of(connection: Connection, task_id: str) -> ChatOrigin | None:
    """Return where in a chat a task was started."""
    rows = connection.query("SELECT chat_origin FROM tasks WHERE id = :id", id=task_id)
    return read_origin(rows[0][0]) if rows else None


def deliveries_of(connection: Connection, task_id: str) -> list[dict[str, Any]]:
    """Return the sent messages of the `message` steps of a task and of its children.

    Steps that a retry kept have sent nothing in this task.
    """
    rows = connection.query(
        "WITH RECURSIVE family(id) AS (SELECT CAST(:id AS TEXT) UNION ALL"
        " SELECT t.id FROM family AS f JOIN steps AS p ON p.task_id = f.id"
        " AND p.kind IN ('workflow', 'agent') JOIN tasks AS t ON t.parent_step_id = p.id)"
        " SELECT s.output FROM family AS f JOIN steps AS s ON s.task_id = f.id"
        " WHERE s.kind = 'message' AND s.status = 'succeeded' AND s.output IS NOT NULL"
        " AND EXISTS (SELECT 1 FROM tool_calls AS c WHERE c.step_id = s.id AND c.attempt > 0)",
        id=task_id,
    )
    outputs = [decode(output) for (output,) in rows]
    return [
        delivery
        for output in outputs
        if isinstance(output, dict)
        for delivery in output.get("deliveries") or []
    ]
