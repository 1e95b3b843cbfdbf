"""Tokens behind buttons and links: stored by hash, valid until an instant, used once."""

import json
from dataclasses import dataclass
from typing import Any

from agent.core.ids import content_hash
from agent.store.db.database import Connection


@dataclass(frozen=True, slots=True)
class AnswerToken:
    """The answer that one button or link gives."""

    channel: str
    identity: str
    approval_id: str
    said: Any
    expires_at: int
    used_at: int | None


def add(
    tx: Connection,
    token: str,
    *,
    channel: str,
    identity: str,
    approval_id: str,
    said: Any,
    expires_at: int,
) -> None:
    """Insert a new token, by its hash alone."""
    tx.execute(
        "INSERT INTO answer_tokens (hash, channel, identity, approval_id, said, expires_at)"
        " VALUES (:hash, :channel, :identity, :approval_id, :said, :expires_at)",
        hash=content_hash(token),
        channel=channel,
        identity=identity,
        approval_id=approval_id,
        said=None if said is None else json.dumps(said, ensure_ascii=False),
        expires_at=expires_at,
    )


def find(connection: Connection, token: str) -> AnswerToken | None:
    """Return a token's row, used or not."""
    rows = connection.query(
        "SELECT channel, identity, approval_id, said, expires_at, used_at FROM answer_tokens"
        " WHERE hash = :hash",
        hash=content_hash(token.encode("utf-8", errors="replace")),
    )
    if not rows:
        return None
    channel, identity, approval_id, said, expires_at, used_at = rows[0]
    answer = None if said is None else json.loads(said)
    return AnswerToken(channel, identity, approval_id, answer, expires_at, used_at)


def use_up(tx: Connection, approval_id: str, now: int) -> None:
    """Mark all tokens of a decided question as used."""
    tx.execute(
        "UPDATE answer_tokens SET used_at = :now"
        " WHERE approval_id = :approval_id AND used_at IS NULL",
        approval_id=approval_id,
        now=now,
    )
