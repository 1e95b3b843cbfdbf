"""Calls of models that reserve a part of a budget."""

from typing import Any

from agent.core import ids
from agent.core.clock import SECOND
from agent.core.state_machine import CallStatus
from agent.steps.types.attempt_input import AttemptInput
from agent.steps.types.call_records import CallResult, Intent, Reservation, Spend
from agent.store.db.database import Database
from agent.tasks.commit.batch import Batch, JournalEntry
from agent.tasks.worker.attempts import claim_of
from tests.support.engine import Hand, HandClock

DAY = "2030-01-31"


def intent_of(claimed: AttemptInput, tokens: int, number: int = 1, **options: Any) -> Intent:
    """Return the intent of a call that may use this number of tokens, at a microdollar each."""
    action = f"model#{number}"
    key = ids.idempotency_key(claimed.task.id, claimed.step_id, claimed.attempt, action, "h")
    given: dict[str, Any] = {"model": "m", "prompt_hash": "p", "day": DAY}
    given |= {"tokens": tokens, "microusd": tokens}
    return Intent(
        call_id=ids.new_id(),
        number=number,
        action=action,
        request={},
        request_hash="h",
        idempotency_key=key,
        remote_key="r",
        on_unknown="retry",
        send_by=0,
        expires_at=0,
        reservation=Reservation(**{**given, **options}),
    )


def intend(hand: Hand, *wanted: tuple[AttemptInput, Intent]) -> list[JournalEntry]:
    """Record intents in one commit; return the notes with their results."""
    notes = [
        JournalEntry(claim_of(claimed), claimed.graph, intent=intent) for claimed, intent in wanted
    ]
    hand.commit(Batch(entries=notes))
    return notes


def result_of(intent: Intent, spend: Spend | None, **options: Any) -> CallResult:
    """Return a call's result; without options it succeeded."""
    given: dict[str, Any] = {"status": CallStatus.SUCCEEDED, "response": "hi", **options}
    return CallResult(
        intent.call_id,
        intent.idempotency_key,
        reservation=intent.reservation,
        spend=spend,
        **given,
    )


def begin_at_noon(database: Database) -> None:
    """Let the test's day be far from its end."""
    assert isinstance(database.clock, HandClock)
    seconds = database.clock.now() // SECOND % 86_400
    database.clock.skip((43_200 - seconds) % 86_400)
