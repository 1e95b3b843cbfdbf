"""Deleting a conversation, for every surface."""

from agent.core.plain_json import Json
from agent.store.db.database import Database
from agent.store.engine import conversation_rows
from agent.tasks.errors import NotFoundError


def forget(database: Database, conversation: str) -> dict[str, Json]:
    """Delete the entries of a conversation; return its name and how many they were."""
    with database.connect("writer") as tx, tx.transaction():
        deleted = conversation_rows.forget(tx, conversation)
    if not deleted:
        raise NotFoundError(
            f"there is no conversation {conversation!r}; `agent conversations` lists them"
        )
    return {"id": conversation, "deleted": deleted}
