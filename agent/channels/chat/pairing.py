"""Pairing: a stranger gets a code, and whoever has the command line confirms it.

The code proves nothing to the agent; it lets the owner say which of the people who wrote to the bot
they mean. Until then a stranger can do nothing but ask for one.
"""

import secrets
from typing import Final

from agent.approvals.permission import Principal
from agent.core.clock import SECOND
from agent.core.scopes import SCOPES, implied
from agent.store.channels import pairings
from agent.store.channels.pairings import Pairing
from agent.store.db.database import Database
from agent.tasks.errors import NotFoundError

CODE_SECONDS: Final = 3600
DEFAULT_SCOPES: Final = ("operate", "approve")
# Without what looks alike.
_LETTERS: Final = "ABCDEFGHJKMNPQRSTUVWXYZ23456789"


def offer(database: Database, channel: str, identity: str, name: str) -> str | None:
    """Return a new code for a stranger, or None when too many wait already."""
    code = "".join(secrets.choice(_LETTERS) for _ in range(8))
    code = f"{code[:4]}-{code[4:]}"
    now = database.clock.now()
    with database.connect("writer") as tx, tx.transaction():
        expires_at = now + CODE_SECONDS * SECOND
        is_kept = pairings.offer(tx, channel, identity, name[:100], code, expires_at, now)
    return code if is_kept else None


def confirm(database: Database, code: str, scopes: list[str]) -> Pairing:
    """Pair whoever was given a code."""
    unknown = set(scopes) - set(SCOPES)
    if unknown or not scopes:
        raise ValueError(f"scopes are of {', '.join(SCOPES)}")
    plain = code.strip().upper()
    with database.connect("writer") as tx, tx.transaction():
        found = pairings.confirm(tx, plain, scopes, database.clock.now())
    if found is None:
        raise NotFoundError(f"nobody waits with the code {plain}, or its time is over")
    return found


def identify(database: Database, channel: str, identity: str) -> Principal:
    """Return the caller that an account in a chat is: without scopes unless it is paired."""
    with database.connect("reader") as connection:
        pairing = pairings.find(connection, channel, identity)
    if pairing is None or pairing.paired_at is None:
        return Principal(channel, identity)
    return principal(pairing)


def principal(pairing: Pairing) -> Principal:
    """Return a paired account as a caller."""
    return Principal(pairing.channel, pairing.identity, implied(pairing.scopes), is_paired=True)
