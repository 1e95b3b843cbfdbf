"""Buttons under a question: each carries a token that says nothing by itself.

A token is known by its hash, belongs to one person in one channel, expires, and is used up with its
question. What it stands for is in the database, so that nobody can make one up.
"""

import secrets
from typing import Final

from agent.channels.chat.message_texts import cut
from agent.core.clock import SECOND
from agent.core.escape import harmless
from agent.steps.spec.questions import VERDICTS
from agent.steps.types.outcome import Json
from agent.store.channels import answer_tokens
from agent.store.channels.answer_tokens import AnswerToken
from agent.store.db.database import Database
from agent.tasks.errors import NotFoundError, RefusedError

GOOD_SECONDS: Final = 7 * 86_400
MOST_CHOICES: Final = 8
_DENY: Final = ("Deny", {"decision": "deny"})


def offered(document: dict[str, Json]) -> list[tuple[str, dict[str, Json]]]:
    """Return the answers that can be given by a button: their labels, and what they say."""
    if document["kind"] == "unknown":
        return [(word.capitalize(), {"decision": "answer", "value": word}) for word in VERDICTS]
    if document["kind"] != "input":
        return [("Approve", {"decision": "approve"}), _DENY]
    choices = document["choices"] or []
    if not 0 < len(choices) <= MOST_CHOICES:
        return [_DENY]
    given: list[tuple[str, dict[str, Json]]] = [
        (cut(harmless(str(choice)), 40), {"decision": "answer", "value": choice})
        for choice in choices
    ]
    return [*given, _DENY]


def make(
    database: Database, document: dict[str, Json], channel: str, identity: str
) -> list[tuple[str, str]]:
    """Return the labels and the new tokens of a question's buttons, for one person."""
    made: list[tuple[str, str]] = []
    expires_at = database.clock.now() + GOOD_SECONDS * SECOND
    with database.connect("writer") as tx, tx.transaction():
        for label, said in offered(document):
            token = secrets.token_urlsafe(24)
            answer_tokens.add(
                tx,
                token,
                channel=channel,
                identity=identity,
                approval_id=document["id"],
                said=said,
                expires_at=expires_at,
            )
            made.append((label, token))
    return made


def pressed(database: Database, token: str, channel: str, identity: str) -> AnswerToken:
    """Return what a button stands for, if it is this person's and still good."""
    with database.connect("reader") as connection:
        found = answer_tokens.find(connection, token)
    if found is None or (found.channel, found.identity) != (channel, identity):
        raise NotFoundError("this button is not known")
    if found.used_at is None and found.expires_at <= database.clock.now():
        raise RefusedError("this button is too old: /approvals shows what is open")
    return found
