"""Pairing: a stranger gets a code, and the owner confirms it on the command line.

The code shows the owner which of the accounts that wrote to the bot is meant. A stranger can do
nothing but request a code.
"""

import secrets
from typing import Final

from agent.approvals.permission import Principal
from agent.config.channels import PAIRED
from agent.core.clock import SECOND
from agent.core.scopes import SCOPES, implied
from agent.store.channels import cursors, pairings
from agent.store.channels.pairings import Pairing
from agent.store.db.database import Database
from agent.tasks.errors import NotFoundError

CODE_SECONDS: Final = 3600
DEFAULT_SCOPES: Final = ("operate", "approve")
# Without characters that look alike.
_LETTERS: Final = "ABCDEFGHJKMNPQRSTUVWXYZ23456789"


def offer(database: Database, channel: str, identity: str, name: str) -> str | None:
    """Return a new code for a stranger, or None when too many codes are open already."""
    code = "".join(secrets.choice(_LETTERS) for _ in range(8))
    code = f"{code[:4]}-{code[4:]}"
    now = database.clock.now()
    with database.connect("writer") as tx, tx.transaction():
        expires_at = now + CODE_SECONDS * SECOND
        is_stored = pairings.offer(tx, channel, identity, name[:100], code, expires_at, now)
    return code if is_stored else None


def confirm(database: Database, code: str, scopes: list[str]) -> Pairing:
    """Pair the account that got a code."""
    unknown = set(scopes) - set(SCOPES)
    if unknown or not scopes:
        raise ValueError(f"--scope must be one of {', '.join(SCOPES)}")
    normal_code = code.strip().upper()
    with database.connect("writer") as tx, tx.transaction():
        now = database.clock.now()
        pairing = pairings.confirm(tx, normal_code, scopes, now)
        if pairing is not None:
            # The process that runs the channel confirms it in the chat, and shows open questions.
            data = {"channel": pairing.channel, "identity": pairing.identity, "scopes": scopes}
            cursors.emit(tx, PAIRED, data, now)
    if pairing is None:
        raise NotFoundError(
            f"the code {normal_code} is unknown or has expired: write to the bot for a new one"
        )
    return pairing


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
