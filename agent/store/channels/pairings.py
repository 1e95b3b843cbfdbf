"""Pairings: the people who may use a chat, by the chat's own ids, confirmed by a code."""

import json
from dataclasses import dataclass
from typing import Any, Final

from agent.core.ids import content_hash
from agent.store.db.database import Connection

_COLUMNS: Final = "channel, identity, name, scopes, code_expires_at, paired_at, created_at"
MOST_WAITING: Final = 100
"""Unpaired people who wait for a confirmation at the same time; more get no answer."""


@dataclass(frozen=True, slots=True)
class Pairing:
    """A person in a chat."""

    channel: str
    identity: str
    name: str
    scopes: tuple[str, ...]
    code_expires_at: int | None
    paired_at: int | None
    created_at: int


def find(connection: Connection, channel: str, identity: str) -> Pairing | None:
    """Return a person's row; None if there is none."""
    rows = connection.query(
        f"SELECT {_COLUMNS} FROM pairings WHERE channel = :channel AND identity = :identity",
        channel=channel,
        identity=identity,
    )
    return _pairing(rows[0]) if rows else None


def listed(connection: Connection, channel: str | None = None) -> list[Pairing]:
    """Return all paired people, of one channel or of all."""
    condition = "" if channel is None else " AND channel = :channel"
    rows = connection.query(
        f"SELECT {_COLUMNS} FROM pairings WHERE paired_at IS NOT NULL{condition}"
        " ORDER BY channel, identity",
        **({} if channel is None else {"channel": channel}),
    )
    return [_pairing(row) for row in rows]


def offer(
    tx: Connection, channel: str, identity: str, name: str, code: str, expires_at: int, now: int
) -> bool:
    """Record a code for an unpaired person, in place of an earlier one; False when too many wait."""
    tx.execute("DELETE FROM pairings WHERE paired_at IS NULL AND code_expires_at < :now", now=now)
    ((waiting,),) = tx.query(
        "SELECT count(*) FROM pairings WHERE paired_at IS NULL AND identity <> :identity",
        identity=identity,
    )
    if waiting >= MOST_WAITING:
        return False
    tx.execute(
        "INSERT INTO pairings"
        " (channel, identity, name, scopes, code_hash, code_expires_at, created_at)"
        " VALUES (:channel, :identity, :name, '[]', :hash, :expires_at, :now)"
        " ON CONFLICT (channel, identity) DO UPDATE SET name = :name, code_hash = :hash,"
        " code_expires_at = :expires_at",
        channel=channel,
        identity=identity,
        name=name,
        hash=content_hash(code),
        expires_at=expires_at,
        now=now,
    )
    return True


def confirm(tx: Connection, code: str, scopes: list[str], now: int) -> Pairing | None:
    """Pair the person with this code; None if it is unknown or expired. A code works once."""
    rows = tx.query(
        f"SELECT {_COLUMNS} FROM pairings WHERE code_hash = :hash AND code_expires_at >= :now",
        hash=content_hash(code),
        now=now,
    )
    if not rows:
        return None
    pairing = _pairing(rows[0])
    tx.execute(
        "UPDATE pairings SET scopes = :scopes, paired_at = :now, code_hash = NULL,"
        " code_expires_at = NULL WHERE channel = :channel AND identity = :identity",
        scopes=json.dumps(scopes),
        now=now,
        channel=pairing.channel,
        identity=pairing.identity,
    )
    return find(tx, pairing.channel, pairing.identity)


def remove(tx: Connection, channel: str, identity: str) -> bool:
    """Remove a person's pairing."""
    changed = tx.execute(
        "DELETE FROM pairings WHERE channel = :channel AND identity = :identity",
        channel=channel,
        identity=identity,
    )
    return changed == 1


def _pairing(row: tuple[Any, ...]) -> Pairing:
    channel, identity, name, scopes, *instants = row
    return Pairing(channel, identity, name, tuple(json.loads(scopes)), *instants)
