"""Conversations that were held before a test."""

from agent.core.ids import new_id
from agent.store.db.database import Database
from agent.store.engine.conversation_rows import NewEntry, append


def said_before(
    database: Database, conversation: str, *pairs: tuple[str, str], now: int = 1
) -> None:
    """Append messages and their answers, each pair by a step of its own."""
    rows = []
    for message, answer in pairs:
        task_id, step_id = new_id(), new_id()
        for role, text in (("user", message), ("assistant", answer)):
            tokens = -(-len(text.encode()) // 4)
            rows.append(NewEntry(conversation, role, text, task_id, step_id, tokens))
    with database.connect("writer") as tx, tx.transaction():
        append(tx, rows, now)
