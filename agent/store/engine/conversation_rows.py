"""Conversations: appending entries, and deleting conversations on request.

Entries are numbered without gaps. The row of a conversation is the lock under which they get their
numbers, taken after all other rows of a transaction, in the order of ids. Appending reads nothing: on
PostgreSQL the statements travel with the others of their transaction.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Final

from agent.core.quick_classes.quick_dataclasses import dataclass
from agent.store.db.database import Connection
from agent.store.db.dialect import ColumnType, Sql
from agent.store.db.json_values import set_of

_ENTRY: Final[dict[str, ColumnType]] = {
    "conversation": "text",
    "back": "int",
    "role": "text",
    "content": "text",
    "task_id": "text",
    "step_id": "text",
    "tokens": "int",
    "covers_until": "int",
    "at": "int",
}
"""`back` is how many entries of the same transaction follow in this conversation."""
_FORGOTTEN_AT_ONCE: Final = 20
_COPIED: Final = "role, content, task_id, step_id, tokens, covers_until"


@dataclass(frozen=True, slots=True)
class NewEntry:
    """An entry to append."""

    conversation: str
    role: str
    content: str
    task_id: str
    step_id: str
    tokens: int
    covers_until: int | None = None


def append(tx: Connection, entries: Iterable[NewEntry], now: int) -> None:
    """Append entries in their order; summaries come last.

    A summary of entries that were deleted meanwhile is dropped, and so is one that covers no more
    than an earlier one.
    """
    plain: defaultdict[str, list[NewEntry]] = defaultdict(list)
    summaries: dict[str, NewEntry] = {}
    for entry in entries:
        if entry.covers_until is None:
            plain[entry.conversation].append(entry)
        else:
            best = summaries.get(entry.conversation)
            if best is None or (best.covers_until or 0) < entry.covers_until:
                summaries[entry.conversation] = entry
    counts = [[name, len(plain[name]), now] for name in sorted(plain)]
    tx.defer(_count(tx.sql), rows=set_of(counts))
    rows = [
        _values(entry, len(listed) - 1 - place, now)
        for listed in plain.values()
        for place, entry in enumerate(listed)
    ]
    tx.defer(_insert(tx.sql), rows=set_of(rows))
    if summaries:
        # One after all others: its number is the next one, and stays free if it is dropped.
        rows = [_values(entry, -1, now) for entry in summaries.values()]
        tx.defer(_insert_summaries(tx.sql), rows=set_of(rows))
        tx.defer(_count_summaries(tx.sql), rows=set_of([[name] for name in sorted(summaries)]))


def _values(entry: NewEntry, back: int, now: int) -> list[object]:
    return [
        entry.conversation,
        back,
        entry.role,
        entry.content,
        entry.task_id,
        entry.step_id,
        entry.tokens,
        entry.covers_until,
        now,
    ]


@cache
def _count(sql: Sql) -> str:
    return (
        "INSERT INTO conversations (id, last_number, forgotten_until, created_at, updated_at)"
        " SELECT r.id, r.added, 0, r.at, r.at"
        f" FROM {sql.rows(id='text', added='int', at='int')} WHERE true ORDER BY r.id"
        " ON CONFLICT (id) DO UPDATE SET"
        " last_number = conversations.last_number + excluded.last_number,"
        " updated_at = excluded.updated_at"
    )


@cache
def _insert(sql: Sql, condition: str = "true") -> str:
    picked = ", ".join(f"r.{name}" for name in _COPIED.split(", "))
    return (
        f"INSERT INTO conversation_turns (conversation, number, {_COPIED}, created_at)"
        f" SELECT r.conversation, c.last_number - r.back, {picked}, r.at"
        f" FROM {sql.rows(**_ENTRY)} JOIN conversations AS c ON c.id = r.conversation"
        f" WHERE {condition}"
    )


@cache
def _insert_summaries(sql: Sql) -> str:
    return _insert(
        sql,
        "r.covers_until > c.forgotten_until AND NOT EXISTS (SELECT 1 FROM conversation_turns AS s"
        " WHERE s.conversation = r.conversation AND s.role = 'summary'"
        " AND s.covers_until >= r.covers_until)",
    )


@cache
def _count_summaries(sql: Sql) -> str:
    return (
        "UPDATE conversations SET last_number = conversations.last_number + 1"
        f" FROM {sql.rows(id='text')} WHERE conversations.id = r.id"
        " AND EXISTS (SELECT 1 FROM conversation_turns AS t"
        " WHERE t.conversation = r.id AND t.number = conversations.last_number + 1)"
    )


def forget(tx: Connection, conversation: str) -> int | None:
    """Delete all entries of a conversation; return how many, None if there is no such conversation."""
    updated = tx.execute(
        "UPDATE conversations SET forgotten_until = last_number WHERE id = :id",
        id=conversation,
    )
    if not updated:
        return None
    return tx.execute("DELETE FROM conversation_turns WHERE conversation = :id", id=conversation)


def forget_idle_in_steps(connection: Connection, before_us: int) -> Iterator[int]:
    """Delete the entries of conversations that got none since an instant.

    After each short transaction yield how many conversations that were.
    """
    while True:
        with connection.transaction():
            rows = connection.query(
                "SELECT id FROM conversations WHERE updated_at < :before"
                " AND last_number > forgotten_until ORDER BY id LIMIT :limit"
                f" {connection.sql.skip_locked}",
                before=before_us,
                limit=_FORGOTTEN_AT_ONCE,
            )
            for (conversation,) in rows:
                forget(connection, conversation)
        if not rows:
            return
        yield len(rows)
