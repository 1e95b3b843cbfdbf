"""The `worker` kind: it offers its work, and finds results on record."""

import json
from typing import Any

import pytest

from agent.steps.types.outcome import Waiting, WorkOffer
from agent.workflows.compile.compiler import compile_text
from agent.workflows.diagnostics import WorkflowError
from tests.support.attempt import Trial, run


def offer_of(config: dict[str, Any]) -> WorkOffer:
    """Return what an attempt offers."""
    outcome = run(Trial("worker", config).attempt())
    assert isinstance(outcome, Waiting) and isinstance(outcome.on, WorkOffer)
    return outcome.on


def test_an_attempt_offers_its_work() -> None:
    """It holds no slot: the outcome is a wait. Without an effect nothing goes to the ledger."""
    offered = offer_of({"queue": "review", "with": {"n": 1}, "lease": "2m"})
    assert (offered.queue, json.loads(offered.input_text)) == ("review", {"n": 1})
    assert (offered.lease_seconds, offered.start_within_seconds) == (120.0, 300.0)
    assert offered.intent is None and not offered.is_effect


def test_an_effect_prepares_its_intent() -> None:
    """The intent names the call; it is recorded when a worker begins."""
    trial = Trial("worker", {"queue": "pay", "with": {"n": 1}, "effect": "once"})
    outcome = run(trial.attempt())
    assert isinstance(outcome, Waiting) and isinstance(outcome.on, WorkOffer)
    intent = outcome.on.intent
    assert intent is not None
    assert (intent.action, intent.on_unknown) == ("worker.pay#1", "ask")
    assert trial.journal.statuses == []


def test_a_large_input_is_stored_apart() -> None:
    """Its row gets a reference."""
    offered = offer_of({"queue": "review", "with": {"text": 100_000 * "x"}})
    assert offered.large is not None and offered.input_text == "null"


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("{with: {a: 1}}", "queue"),
        ("{queue: Bad Name}", "queue"),
        ("{queue: q, lease: 0s}", "lease must be between 1s and 24h"),
        ("{queue: q, start_within: 0s}", "start_within must be between 1s and 24h"),
        ("{queue: q, start_within: 3d}", "start_within must be between"),
        ("{queue: q, effect: twice}", "effect"),
        # No text from outside chooses who gets the work.
        ('{queue: "{{ inputs.who }}"}', "queue"),
    ],
)
def test_bad_keys_are_refused(keys: str, message: str) -> None:
    """When the file is read, naming the key."""
    with pytest.raises(WorkflowError, match=message):
        compile_text(f"name: w\nsteps:\n  a:\n    worker: {keys}\n".encode(), "w.yaml")
