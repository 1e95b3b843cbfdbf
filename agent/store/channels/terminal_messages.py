"""Messages to people at `agent chat`, kept until they are shown."""

from dataclasses import dataclass
from functools import cache

from agent.store.db.database import Connection
from agent.store.db.dialect import Sql
from agent.store.db.json_values import decode, set_of


@dataclass(frozen=True, slots=True)
class TerminalMessage:
    """A message that was not shown yet."""

    id: str
    text: str
    attachments: list[dict[str, str | int | None]]
    task_id: str | None
    workflow: str | None
    created_at: int


def add(
    tx: Connection,
    message_id: str,
    *,
    recipient: str,
    text: str,
    attachments: str | None,
    task_id: str | None,
    now: int,
) -> None:
    """Insert a message, unless one has this id."""
    tx.execute(
        "INSERT INTO terminal_messages (id, recipient, text, attachments, task_id, created_at)"
        " VALUES (:id, :recipient, :text, :attachments, :task_id, :now)"
        " ON CONFLICT (id) DO NOTHING",
        id=message_id,
        recipient=recipient,
        text=text,
        attachments=attachments,
        task_id=task_id,
        now=now,
    )


def unread(connection: Connection, recipient: str, limit: int = 100) -> list[TerminalMessage]:
    """Return the messages that a person has not seen, the oldest first."""
    rows = connection.query(
        "SELECT m.id, m.text, m.attachments, m.task_id, t.workflow_name, m.created_at"
        " FROM terminal_messages AS m LEFT JOIN tasks AS t ON t.id = m.task_id"
        " WHERE m.recipient = :recipient AND m.shown_at IS NULL"
        " ORDER BY m.created_at, m.id LIMIT :limit",
        recipient=recipient,
        limit=limit,
    )
    return [
        TerminalMessage(message_id, text, decode(attachments) or [], *rest)
        for message_id, text, attachments, *rest in rows
    ]


@cache
def _set_shown(sql: Sql) -> str:
    return f"UPDATE terminal_messages SET shown_at = :now WHERE id IN {sql.ids()}"


def set_shown(tx: Connection, message_ids: list[str], now: int) -> None:
    """Record that messages were shown."""
    tx.execute(_set_shown(tx.sql), ids=set_of(message_ids), now=now)
