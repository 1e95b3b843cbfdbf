"""Completions of steps with `set_state`, made as the runner makes them and committed by hand."""

from typing import Any

from agent.core.ids import request_hash
from agent.core.state_machine import CallStatus
from agent.steps.attempt.recorded_calls.intents import StoredBody, new_intent
from agent.steps.attempt.secrets import Secrets
from agent.steps.attempt.state_change import render_change
from agent.steps.types.attempt_input import AttemptInput
from agent.steps.types.call_records import CallResult, Intent
from agent.steps.types.call_types import NumberedRequest, Request
from agent.steps.types.outcome import Succeeded
from agent.tasks.commit.batch import Batch, CommitResult, Completion, JournalEntry
from agent.tasks.worker.attempts import claim_of
from agent.tasks.worker.state_conflicts import render_again
from tests.support.engine import Hand, settle_of


def completion_of(claimed: AttemptInput, output: Any = None) -> Completion:
    """Return the completion of an attempt that returned this output."""
    change = render_change(claimed, output, Secrets())
    return settle_of(claimed, Succeeded(output, state=change))


def recorded_call(hand: Hand, claimed: AttemptInput, response: Any) -> Intent:
    """Record the one call of a step that is its outcome, and its success; the step runs on."""
    request = Request("python", {}, "ask", 1.0, settles_step=True)
    numbered = NumberedRequest(request, 1, "python#1", "{}", request_hash({}))
    intent = new_intent(claimed, numbered, StoredBody({}, None), None, hand.clock.now())
    claim, graph = claim_of(claimed), claimed.graph
    result = CallResult(intent.call_id, intent.idempotency_key, CallStatus.SUCCEEDED, response)
    hand.commit(Batch(entries=[JournalEntry(claim, graph, intent=intent)]))
    hand.commit(Batch(entries=[JournalEntry(claim, graph, result=result)]))
    return intent


def settle_once(hand: Hand, completions: list[Completion]) -> tuple[CommitResult, list[Completion]]:
    """Commit completions; return what was done, and those in conflict, rendered again."""
    done = hand.commit(Batch(completions=completions))
    return done, [*render_again(done.result), *done.result.carried_completions]
