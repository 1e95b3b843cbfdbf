"""Memories and tasks that agents made through tools, beside their calls; for the checker."""

import json

from agent.store.db.database import Connection


def memories_without_call(connection: Connection) -> list[tuple[int, str]]:
    """Return (id, task) of memories of agents that no call of their task has on record."""
    rows = connection.query(
        "SELECT m.id, m.task_id FROM memories AS m JOIN tasks AS t ON t.id = m.task_id"
        " WHERE NOT EXISTS (SELECT 1 FROM tool_calls AS c WHERE c.task_id = m.task_id"
        " AND c.remote_key = m.call_key) ORDER BY m.id"
    )
    return [(int(memory_id), str(task_id)) for memory_id, task_id in rows]


def calls_with_several_memories(connection: Connection) -> list[tuple[str, str, int]]:
    """Return (task, action, count) of calls with more than one memory of the same text."""
    rows = connection.query(
        "SELECT c.task_id, c.action, count(DISTINCT m.id) FROM memories AS m"
        " JOIN tool_calls AS c ON c.task_id = m.task_id AND c.remote_key = m.call_key"
        " GROUP BY c.task_id, c.step_id, c.number, c.action, m.text"
        " HAVING count(DISTINCT m.id) > 1"
    )
    return [(str(task_id), str(action), int(count)) for task_id, action, count in rows]


def unindexed_memories(connection: Connection) -> int:
    """Return by how many rows the full-text index of SQLite differs from the memories."""
    if connection.sql.name != "sqlite":
        return 0
    ((rows, indexed),) = connection.query(
        "SELECT (SELECT count(*) FROM memories), (SELECT count(*) FROM memories_index_docsize)"
    )
    return abs(int(rows) - int(indexed))


def starts_without_call(connection: Connection) -> list[tuple[str, str]]:
    """Return (task, starter) of tasks that an agent started, and no call of the starter has on record.

    Starters that were pruned are not asked.
    """
    rows = connection.query(
        "SELECT id, dedupe_key, trigger FROM tasks WHERE dedupe_key LIKE 'agent:%' ORDER BY id"
    )
    without_call = []
    for task_id, dedupe_key, trigger in rows:
        starter = json.loads(trigger)["task"]
        calls = connection.query(
            "SELECT count(c.id) FROM tasks AS t LEFT JOIN tool_calls AS c ON c.task_id = t.id"
            " AND c.remote_key = :key WHERE t.id = :starter GROUP BY t.id",
            key=dedupe_key.removeprefix("agent:"),
            starter=starter,
        )
        if calls and not calls[0][0]:
            without_call.append((str(task_id), str(starter)))
    return without_call
