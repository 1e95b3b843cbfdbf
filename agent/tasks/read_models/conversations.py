"""Conversations, for steps that go on with one (`ConversationReader`) and as documents for people."""

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

from agent.core.clock import to_iso
from agent.core.plain_json import Json
from agent.steps.types.conversation import Entry
from agent.steps.types.errors import DefiniteFailure
from agent.store.db.database import Connection, Database, StoreError
from agent.store.read import conversation_views
from agent.store.read.conversation_views import EntryRow
from agent.tasks.errors import NotFoundError
from agent.tasks.read_models import person_waits, task_documents

Document = dict[str, Json]
T = TypeVar("T")

_RETRY_SECONDS: Final = 2.0


class ConversationReader:
    """Reads conversations for the steps of a worker, in threads."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def task_before(self, conversation: str, task_id: str) -> str | None:
        """Return an earlier task that has still to answer, unless it waits for a person."""

        def read(connection: Connection) -> str | None:
            for earlier, _ in conversation_views.earlier_tasks(connection, conversation, task_id):
                document = task_documents.task_document(connection, earlier)
                if not person_waits.waits_on_person(document):
                    return earlier
            return None

        return await self._read(read)

    async def last_number(self, conversation: str) -> int:
        """Return the number of the newest entry, 0 for none."""
        return await self._read(
            lambda connection: conversation_views.last_number(connection, conversation)
        )

    async def entries(self, conversation: str, until: int) -> list[Entry]:
        """Return the newest summary up to a number, if any, then the entries after what it covers."""

        def read(connection: Connection) -> list[Entry]:
            rows = conversation_views.current_entries(connection, conversation, until)
            return [
                Entry(row.number, row.role, row.content, row.tokens, row.covers_until)
                for row in rows
            ]

        return await self._read(read)

    async def _read(self, function: Callable[[Connection], T]) -> T:
        def read() -> T:
            with self._database.connect("reader") as connection, connection.snapshot():
                return function(connection)

        try:
            return await asyncio.to_thread(read)
        except StoreError as error:
            text = f"the conversation cannot be read: {error}"
            raise DefiniteFailure(
                text,
                code="database",
                kind="transport",
                may_retry=error.fault.is_transient,
                delay_seconds=_RETRY_SECONDS,
            ) from None


def list_conversations(connection: Connection, limit: int) -> list[Document]:
    """Return conversations, the one with the newest entry first."""
    return [
        {
            "id": name,
            "entries": int(count),
            "tokens": int(tokens),
            "summaries": int(summaries),
            "first_at": to_iso(first_at),
            "last_at": to_iso(last_at),
        }
        for name, count, tokens, summaries, first_at, last_at in conversation_views.listed(
            connection, limit
        )
    ]


def conversation_document(
    connection: Connection, conversation: str, after: int, limit: int
) -> Document:
    """Return a conversation with its entries after a number; `next` is where to go on, null at the end."""
    rows = conversation_views.entries(connection, conversation, after, limit + 1)
    if not rows and not conversation_views.entries(connection, conversation, 0, 1):
        raise NotFoundError(f"there is no conversation {conversation!r}")
    page = rows[:limit]
    return {
        "id": conversation,
        "entries": [_entry_document(row) for row in page],
        "next": page[-1].number if len(rows) > limit else None,
    }


def _entry_document(row: EntryRow) -> Document:
    return {
        "number": row.number,
        "role": row.role,
        "text": row.content,
        "task": row.task_id,
        "tokens": row.tokens,
        "covers_until": row.covers_until,
        "at": to_iso(row.created_at),
    }
