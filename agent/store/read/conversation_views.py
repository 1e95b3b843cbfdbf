"""Reads of conversations: for steps that go on with one, for people, and for the checker."""

from dataclasses import dataclass
from typing import Any, Final, Literal

from agent.store.db.database import Connection

_COLUMNS: Final = "number, role, content, task_id, step_id, tokens, covers_until, created_at"


@dataclass(frozen=True, slots=True)
class EntryRow:
    """One entry of a conversation."""

    number: int
    role: Literal["user", "assistant", "summary"]
    content: str
    task_id: str | None
    step_id: str | None
    tokens: int
    covers_until: int | None
    created_at: int


def last_number(connection: Connection, conversation: str) -> int:
    """Return the number of the newest entry, 0 for none."""
    rows = connection.query("SELECT last_number FROM conversations WHERE id = :id", id=conversation)
    return int(rows[0][0]) if rows else 0


def current_entries(connection: Connection, conversation: str, until: int) -> list[EntryRow]:
    """Return the newest summary up to a number, if there is one, and then the entries after what it covers."""
    rows = connection.query(
        f"SELECT {_COLUMNS} FROM conversation_turns WHERE conversation = :id AND role = 'summary'"
        " AND number <= :until ORDER BY number DESC LIMIT 1",
        id=conversation,
        until=until,
    )
    covered = rows[0][6] if rows else 0
    rows += connection.query(
        f"SELECT {_COLUMNS} FROM conversation_turns WHERE conversation = :id"
        " AND number > :covered AND number <= :until AND role <> 'summary' ORDER BY number",
        id=conversation,
        covered=covered,
        until=until,
    )
    return [EntryRow(*row) for row in rows]


def earlier_tasks(connection: Connection, conversation: str, task_id: str) -> list[tuple[str, str]]:
    """Return (id, status) of tasks before one whose agents have still to answer in a conversation."""
    rows = connection.query(
        "SELECT t.id, t.status FROM tasks AS t WHERE t.conversation = :conversation"
        " AND t.status IN ('pending', 'running') AND t.id < :id AND EXISTS"
        " (SELECT 1 FROM steps AS s WHERE s.task_id = t.id AND s.kind = 'agent'"
        " AND s.status IN ('pending', 'running', 'waiting')) ORDER BY t.id",
        conversation=conversation,
        id=task_id,
    )
    return [(str(name), str(status)) for name, status in rows]


def listed(connection: Connection, limit: int) -> list[tuple[Any, ...]]:
    """Return (id, entries, tokens, summaries, first at, last at) of conversations, the newest first."""
    return connection.query(
        "SELECT c.id, count(*), sum(t.tokens), sum(CASE WHEN t.role = 'summary' THEN 1 ELSE 0 END),"
        " min(t.created_at), c.updated_at FROM (SELECT id, updated_at FROM conversations"
        " WHERE last_number > forgotten_until ORDER BY updated_at DESC, id LIMIT :limit) AS c"
        " JOIN conversation_turns AS t ON t.conversation = c.id"
        " GROUP BY c.id, c.updated_at ORDER BY c.updated_at DESC, c.id",
        limit=limit,
    )


def entries(connection: Connection, conversation: str, after: int, limit: int) -> list[EntryRow]:
    """Return entries after a number, the oldest first."""
    rows = connection.query(
        f"SELECT {_COLUMNS} FROM conversation_turns WHERE conversation = :id AND number > :after"
        " ORDER BY number LIMIT :limit",
        id=conversation,
        after=after,
        limit=limit,
    )
    return [EntryRow(*row) for row in rows]
