"""Messages to a person at `agent chat`: rows, which that command shows."""

import asyncio
import json

from agent.channels.messages.document import parse
from agent.channels.messages.plain_text import to_plain
from agent.steps.types.messages import Sending
from agent.store.channels import terminal_messages
from agent.store.db.database import Database


class TerminalSender:
    """Stores one part of a message."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def send(self, sending: Sending) -> str:
        """Store a message under the call's key: a repeated call stores it once."""
        await asyncio.to_thread(self._store, sending)
        return sending.key[:16]

    async def close(self) -> None:
        """Nothing stays open."""

    def _store(self, sending: Sending) -> None:
        part, attached = sending.part, None
        if part.attachment is not None:
            file = part.attachment
            attached = json.dumps(
                [{"name": file.name, "bytes": len(file.content), "path": file.path}],
                ensure_ascii=False,
            )
        text = to_plain(parse(part.text, is_markdown=part.is_markdown))
        with self._database.connect("writer") as tx, tx.transaction():
            terminal_messages.add(
                tx,
                sending.key,
                recipient=sending.recipient.id,
                text=text,
                attachments=attached,
                task_id=sending.task_id,
                now=self._database.clock.now(),
            )
