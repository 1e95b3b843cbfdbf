"""Cursors of channels: how far each has read the event log, and which messages it has shown."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from agent.core.chat_origin import origin_prefix
from agent.store.db.database import Connection
from agent.store.db.dialect import Sql
from agent.store.engine.writes import insert_events
from agent.store.read import views

LogPosition = tuple[int, int]
"""A position in the event log: (transaction id, event id)."""

MAX_ERROR: Final = 1000


@dataclass(frozen=True, slots=True)
class Cursor:
    """How far a channel has read, and its failures."""

    channel: str
    xid: int
    event_id: int
    failures: int
    error: str | None
    retry_at: int | None
    trouble: str | None
    """Why it cannot be opened or receive; None while it can."""
    updated_at: int

    @property
    def position(self) -> LogPosition:
        """The position of the last event that was delivered."""
        return (self.xid, self.event_id)


@dataclass(frozen=True, slots=True)
class Event:
    """One event, as channels need it."""

    xid: int
    id: int
    task_id: str | None
    type: str
    at: int
    data: Any

    @property
    def position(self) -> LogPosition:
        """Its position in the log."""
        return (self.xid, self.id)


@dataclass(frozen=True, slots=True)
class Message:
    """A question as a message shows it."""

    recipient: str
    reference: str
    shown: str


_CURSOR: Final = (
    "SELECT channel, xid, event_id, failures, error, retry_at, trouble, updated_at"
    " FROM channel_cursors"
)


def cursor(connection: Connection, channel: str) -> Cursor | None:
    """Return a channel's cursor; None before its first start."""
    rows = connection.query(f"{_CURSOR} WHERE channel = :channel", channel=channel)
    return Cursor(*rows[0]) if rows else None


def cursors(connection: Connection) -> list[Cursor]:
    """Return the cursors of all channels."""
    return [Cursor(*row) for row in connection.query(f"{_CURSOR} ORDER BY channel")]


NOT_BEGUN: Final[LogPosition] = (-1, -1)
"""The position of a channel that has not sent the questions open before it."""


def start(tx: Connection, channel: str, now: int) -> None:
    """Insert the cursor of a new channel, unless it exists."""
    tx.execute(
        "INSERT INTO channel_cursors (channel, xid, event_id, owned_until, failures, updated_at)"
        " VALUES (:channel, :xid, :event_id, 0, 0, :now) ON CONFLICT (channel) DO NOTHING",
        channel=channel,
        xid=NOT_BEGUN[0],
        event_id=NOT_BEGUN[1],
        now=now,
    )


def move(tx: Connection, channel: str, position: LogPosition, now: int) -> None:
    """Move the cursor to a position and clear its failures."""
    tx.execute(
        "UPDATE channel_cursors SET xid = :xid, event_id = :event_id, failures = 0, error = NULL,"
        " retry_at = NULL, updated_at = :now WHERE channel = :channel",
        channel=channel,
        xid=position[0],
        event_id=position[1],
        now=now,
    )


def fail(tx: Connection, channel: str, error: str, retry_at: int, now: int) -> None:
    """Record that the next delivery failed, and when it is retried."""
    tx.execute(
        "UPDATE channel_cursors SET failures = failures + 1, error = :error, retry_at = :retry_at,"
        " updated_at = :now WHERE channel = :channel",
        channel=channel,
        error=error[:MAX_ERROR],
        retry_at=retry_at,
        now=now,
    )


def set_trouble(tx: Connection, channel: str, trouble: str | None, now: int) -> None:
    """Record why a channel cannot be opened or receive; None clears it."""
    tx.execute(
        "UPDATE channel_cursors SET trouble = :trouble, updated_at = :now WHERE channel = :channel",
        channel=channel,
        trouble=None if trouble is None else trouble[:MAX_ERROR],
        now=now,
    )


def owner_of(connection: Connection, channel: str) -> str | None:
    """Return who has the lease to deliver, or had it last."""
    rows = connection.query(
        "SELECT owner FROM channel_cursors WHERE channel = :channel", channel=channel
    )
    return None if not rows or rows[0][0] is None else str(rows[0][0])


def own(
    tx: Connection, channel: str, owner: str, until: int, now: int, ended: str | None = None
) -> bool:
    """Take or renew the lease to deliver; False while another process has it.

    `ended` is an owner that delivers no more.
    """
    changed = tx.execute(
        "UPDATE channel_cursors SET owner = :owner, owned_until = :until"
        " WHERE channel = :channel AND (owner IN (:owner, :ended) OR owned_until < :now)",
        channel=channel,
        owner=owner,
        ended=ended or owner,
        until=until,
        now=now,
    )
    return changed == 1


def disown(tx: Connection, channel: str, owner: str) -> None:
    """Release the lease, so that another process can deliver at once."""
    tx.execute(
        "UPDATE channel_cursors SET owned_until = 0 WHERE channel = :channel AND owner = :owner",
        channel=channel,
        owner=owner,
    )


def emit_failure(tx: Connection, details: dict[str, Any], now: int) -> None:
    """Append the event of a failed delivery, outside the numbering of tasks."""
    emit(tx, "delivery.failed", details, now)


def emit(tx: Connection, kind: str, data: dict[str, Any], now: int) -> None:
    """Append an event that belongs to no task."""
    text = json.dumps(data, ensure_ascii=False)
    insert_events(tx, [(None, None, kind, None, None, now, text)])


_ENDS: Final = (
    " OR (type IN ('task.succeeded', 'task.canceled') AND EXISTS (SELECT 1 FROM tasks AS t"
    " WHERE t.id = events.task_id AND t.chat_origin LIKE :origin AND t.parent_task_id IS NULL))"
)
"""The ends of tasks that were started in a chat. Children do not report: their parent does."""


@cache
def _events(sql: Sql, ends: str) -> str:
    after, order = "id > :id AND id <= :last_id", "id"
    if sql.name == "postgresql":
        after = "(xid, id) > (:xid, :id) AND (xid, id) <= (:last_xid, :last_id)"
        order = "xid, id"
    return (
        "SELECT xid, id, task_id, type, at, data FROM events"
        f" WHERE {after} AND (type IN {sql.ids('types')}{ends}) ORDER BY {order} LIMIT :limit"
    )


def events_after(
    connection: Connection,
    position: LogPosition,
    types: Sequence[str],
    limit: int,
    ends_in: str | None = None,
) -> tuple[list[Event], LogPosition]:
    """Return the next events of some types after a position, and the position up to which they are complete.

    With `ends_in` these are also the ends of tasks that were started in that chat. Call it within a snapshot: the end of the readable log must not move in between.
    """
    last = max(views.latest_event(connection), position)
    params: dict[str, Any] = {"id": position[1], "last_id": last[1]}
    if connection.sql.name == "postgresql":
        params |= {"xid": position[0], "last_xid": last[0]}
    ends = ""
    if ends_in is not None:
        ends = _ENDS
        params["origin"] = origin_prefix(ends_in)
    rows = connection.query(
        _events(connection.sql, ends), types=json.dumps(list(types)), limit=limit, **params
    )
    events = [
        Event(xid, event_id, task_id, kind, at, None if data is None else json.loads(data))
        for xid, event_id, task_id, kind, at, data in rows
    ]
    return events, events[-1].position if len(events) == limit else last


def record_message(
    tx: Connection, channel: str, recipient: str, approval_id: str, reference: str, now: int
) -> None:
    """Record the message that shows a question; a later one replaces it."""
    tx.execute(
        "INSERT INTO channel_messages (channel, place, approval_id, reference, shown, delivered_at)"
        " VALUES (:channel, :place, :approval_id, :reference, 'pending', :now)"
        " ON CONFLICT (channel, place, approval_id) DO UPDATE SET reference = :reference,"
        " shown = 'pending', delivered_at = :now",
        channel=channel,
        place=recipient,
        approval_id=approval_id,
        reference=reference,
        now=now,
    )


def messages_of(connection: Connection, channel: str, approval_id: str) -> list[Message]:
    """Return the messages in which a channel shows a question."""
    rows = connection.query(
        "SELECT place, reference, shown FROM channel_messages"
        " WHERE channel = :channel AND approval_id = :approval_id ORDER BY place",
        channel=channel,
        approval_id=approval_id,
    )
    return [Message(*row) for row in rows]


def shown_as(connection: Connection, channel: str, recipient: str, reference: str) -> str | None:
    """Return the question that a message shows."""
    rows = connection.query(
        "SELECT approval_id FROM channel_messages"
        " WHERE channel = :channel AND place = :place AND reference = :reference",
        channel=channel,
        place=recipient,
        reference=reference,
    )
    return str(rows[0][0]) if rows else None


def set_shown(tx: Connection, channel: str, recipient: str, approval_id: str, shown: str) -> None:
    """Record the present state of a shown message."""
    tx.execute(
        "UPDATE channel_messages SET shown = :shown"
        " WHERE channel = :channel AND place = :place AND approval_id = :approval_id",
        channel=channel,
        place=recipient,
        approval_id=approval_id,
        shown=shown,
    )
