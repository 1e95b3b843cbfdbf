"""What `agent chat` shows a user of this machine: messages of steps, and the ends of tasks started there.

Each is shown at least once: it counts as shown after it was printed. Messages are rows of their own;
ends are read from the event log by a cursor per user.
"""

from dataclasses import dataclass, field
from typing import Final

from agent.channels.chat import task_ends
from agent.channels.notifications import notification_of
from agent.core.escape import harmless
from agent.store.channels import cursors, terminal_messages
from agent.store.channels.cursors import LogPosition
from agent.store.channels.terminal_messages import TerminalMessage
from agent.store.db.database import Connection, Database
from agent.tasks.read_models.task_documents import short_id

TERMINAL: Final = "terminal"
_PAGE: Final = 100


@dataclass(frozen=True, slots=True)
class News:
    """Messages to show, and the cursor to record once they were shown."""

    texts: list[str] = field(default_factory=list)
    message_ids: list[str] = field(default_factory=list)
    position: LogPosition | None = None


class TerminalInbox:
    """The messages and task ends of one user."""

    def __init__(self, database: Database, user: str) -> None:
        self._database = database
        self._user = user
        self._cursor = f"{TERMINAL}:{user}"

    def read(self) -> News:
        """Return the messages not shown yet; `confirm` records them as shown."""
        with self._database.connect("reader") as connection, connection.snapshot():
            messages = terminal_messages.unread(connection, self._user, _PAGE)
            texts = list(map(_shown, messages))
            cursor = cursors.cursor(connection, self._cursor)
            if cursor is None:
                # A new reader sees only later events.
                _, position = cursors.events_after(connection, (0, 0), [], 1)
            else:
                ends, position = self._ends(connection, cursor.position)
                texts += ends
            is_moved = cursor is None or position != cursor.position
        return News(texts, [message.id for message in messages], position if is_moved else None)

    def confirm(self, news: News) -> None:
        """Record that news were shown."""
        if not news.message_ids and news.position is None:
            return
        now = self._database.clock.now()
        with self._database.connect("writer") as tx, tx.transaction():
            if news.message_ids:
                terminal_messages.set_shown(tx, news.message_ids, now)
            if news.position is not None:
                cursors.start(tx, self._cursor, now)
                cursors.move(tx, self._cursor, news.position, now)

    def _ends(self, connection: Connection, after: LogPosition) -> tuple[list[str], LogPosition]:
        events, position = cursors.events_after(
            connection, after, ["task.failed"], _PAGE, ends_in=TERMINAL
        )
        texts = []
        for event in events:
            notice = notification_of(connection, event)
            origin = None if notice is None else notice.origin
            if notice is None or notice.task is None or origin is None:
                continue
            if (origin.channel, origin.recipient) == (TERMINAL, self._user):
                text = task_ends.text_of(connection, event.type, notice.task, origin)
                texts += [] if text is None else [text]
        return texts, position


def _shown(message: TerminalMessage) -> str:
    # Its task may have been removed.
    sender = f"{message.workflow or 'task'} {short_id(message.task_id)}" if message.task_id else ""
    heading = f"✉ {sender or 'message'}:"
    lines = [heading, message.text] if message.text else [heading]
    for attached in message.attachments:
        where = f": {attached['path']}" if attached.get("path") else ""
        lines.append(f"[file {attached['name']}, {attached['bytes']:,} bytes{where}]")
    return harmless("\n".join(lines))
