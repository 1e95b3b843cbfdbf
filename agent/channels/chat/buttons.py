"""Buttons under a question: each carries an opaque random token.

The database holds the answer behind a token, under the token's hash. A token belongs to one account in
one channel, expires, and is used up when its question is decided. So buttons cannot be forged.
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

LIFETIME_SECONDS: Final = 7 * 86_400
MAX_CHOICES: Final = 8
_DENY: Final = ("Deny", {"decision": "deny"})


def answers_of(document: dict[str, Json]) -> list[tuple[str, dict[str, Json]]]:
    """Return the answers to a question that a button can give, with their labels."""
    if document["kind"] == "unknown":
        return [
            (verdict.capitalize(), {"decision": "answer", "value": verdict}) for verdict in VERDICTS
        ]
    if document["kind"] != "input":
        return [("Approve", {"decision": "approve"}), _DENY]
    choices = document["choices"] or []
    if not 0 < len(choices) <= MAX_CHOICES:
        return [_DENY]
    answers: list[tuple[str, dict[str, Json]]] = [
        (cut(harmless(str(choice)), 40), {"decision": "answer", "value": choice})
        for choice in choices
    ]
    return [*answers, _DENY]


def create(
    database: Database, document: dict[str, Json], channel: str, identity: str
) -> list[tuple[str, str]]:
    """Return the labels and the new tokens of a question's buttons, for one account."""
    labelled: list[tuple[str, str]] = []
    expires_at = database.clock.now() + LIFETIME_SECONDS * SECOND
    with database.connect("writer") as tx, tx.transaction():
        for label, answer in answers_of(document):
            token = secrets.token_urlsafe(24)
            answer_tokens.add(
                tx,
                token,
                channel=channel,
                identity=identity,
                approval_id=document["id"],
                said=answer,
                expires_at=expires_at,
            )
            labelled.append((label, token))
    return labelled


def find(database: Database, token: str, channel: str, identity: str) -> AnswerToken:
    """Return the answer behind a button, if the button is this account's and has not expired."""
    with database.connect("reader") as connection:
        button = answer_tokens.find(connection, token)
    if button is None or (button.channel, button.identity) != (channel, identity):
        raise NotFoundError("this button is not valid for this account")
    if button.used_at is None and button.expires_at <= database.clock.now():
        raise RefusedError("this button has expired: /approvals lists the open questions")
    return button
