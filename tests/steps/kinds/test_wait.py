from datetime import UTC, datetime

import pytest

from agent.core.clock import SECOND
from agent.core.ids import request_hash
from agent.core.state_machine import ApprovalStatus
from agent.core.waits import Child, ChildRequest, EndedWait, Signal, Timer
from agent.steps.attempt.attempt_limits import PARKING_ATTEMPTS
from agent.steps.types.call_records import RecordedApproval
from agent.steps.types.outcome import Failed, Json, Question, Succeeded, Waiting
from agent.workflows.graph import Fanout
from tests.support.attempt import Trial, python, run


def test_a_duration_is_waited_once_also_when_woken_early() -> None:
    """The instant is fixed by the first attempt; after it the step succeeds."""
    trial = Trial("wait", {"duration": "1h30m"})
    first = run(trial.attempt())
    assert isinstance(first, Waiting)
    assert first.wake_at is not None
    assert first.on == Timer(first.wake_at)
    assert abs(first.wake_at - trial.clock.now() - 5400 * SECOND) < 60 * SECOND
    trial.clock.advance(5000)
    assert run(trial.attempt()) == first
    trial.clock.advance(500)
    assert run(trial.attempt()) == Succeeded()


def test_seconds_may_be_a_number_and_zero_does_not_wait() -> None:
    """A template may give a number of seconds."""
    assert run(Trial("wait", {"duration": "{{ inputs.s }}"}, inputs={"s": 0}).attempt()) == (
        Succeeded()
    )


def test_an_instant_is_waited_for() -> None:
    """`until` takes an instant with its offset; one that has passed is no wait."""
    moment = datetime(2100, 1, 1, 1, tzinfo=UTC)
    outcome = run(Trial("wait", {"until": "2100-01-01T02:00:00+01:00"}).attempt())
    assert isinstance(outcome, Waiting)
    assert outcome.wake_at == int(moment.timestamp()) * SECOND
    assert run(Trial("wait", {"until": "2020-01-01T00:00:00Z"}).attempt()) == Succeeded()


def test_a_signal_is_waited_for_and_its_value_taken() -> None:
    """The step waits on the name, and its output is what the signal carried, null too."""
    trial = Trial("wait", {"signal": "go"})
    assert run(trial.attempt()) == Waiting(Signal("go"))
    trial.waited = EndedWait(Signal("go"), {"value": {"speed": 3}})
    assert run(trial.attempt()) == Succeeded({"speed": 3})
    trial.waited = EndedWait(Signal("go"), {"value": None})
    assert run(trial.attempt()) == Succeeded()


def test_a_child_is_asked_for_and_its_end_taken() -> None:
    """The step asks for the child with its rendered input, and ends as the child did."""
    trial = Trial("workflow", {"name": "other", "with": {"n": "{{ inputs.n }}"}}, inputs={"n": 2})
    assert run(trial.attempt()) == Waiting(ChildRequest("other", {"n": 2}))
    trial.waited = EndedWait(Child("c1"), {"status": "succeeded", "output": [1]})
    assert run(trial.attempt()) == Succeeded([1])
    trial.waited = EndedWait(Child("c1"), {"status": "failed", "error": {"message": "no luck"}})
    outcome = run(trial.attempt())
    assert isinstance(outcome, Failed)
    assert outcome.error.kind == "child"
    assert "no luck" in outcome.error.message
    trial.waited = EndedWait(Child("c1"), {"status": "lost"})
    assert isinstance(run(trial.attempt()), Failed)


@pytest.mark.parametrize(
    ("kind", "config"),
    [
        ("wait", {"duration": "30d"}),
        ("wait", {"signal": "go"}),
        ("workflow", {"name": "other"}),
        ("approval", {"message": "Is it {{ inputs.what }}?"}),
        ("input", {"message": "What is it?"}),
    ],
)
def test_steps_that_wait_or_ask_have_spare_attempts(kind: str, config: dict[str, Json]) -> None:
    """They may be lost more often than a step may act, but not for ever: they may be poisonous."""
    trial = Trial(kind, config, inputs={"what": "so"}, max_attempts=1)
    trial.attempt_number = 1 + PARKING_ATTEMPTS
    assert isinstance(run(trial.attempt()), Waiting)
    trial.attempt_number += 1
    outcome = run(trial.attempt())
    assert isinstance(outcome, Failed)
    assert outcome.error.code == "attempts_exhausted"


def test_a_group_that_decides_its_items_has_attempts_to_lose() -> None:
    """To say what the items are is no act either; the items have their own attempts."""
    options = {"fanout": Fanout(count=2)}
    trial = Trial("shell", {"argv": ["false"]}, options=options, max_attempts=1)
    trial.claim = {"is_group": True}
    trial.attempt_number = 2
    assert run(trial.attempt()) == Succeeded(items=[0, 1])
    trial.claim = {"parallel_index": 0, "parallel_count": 2}
    assert isinstance(run(trial.attempt()), Failed)


def test_a_gate_may_ask_beyond_the_last_attempt_and_lets_nothing_through() -> None:
    """Who was lost while asking asks again; who was approved and lost since does not act again."""
    ran = []
    gate = {"approval": {"message": "May it?"}}
    trial = python(lambda: ran.append(1), max_attempts=1, options=gate)
    trial.attempt_number = 2
    asked = run(trial.attempt())
    assert isinstance(asked, Waiting)
    assert isinstance(asked.on, Question)
    digest = request_hash(asked.on.request)
    status = ApprovalStatus.APPROVED
    nothing = [None] * 5
    approved = RecordedApproval("a1", "approval", status, digest, digest, *nothing)
    trial.claim = {"approvals": [approved]}
    outcome = run(trial.attempt())
    assert isinstance(outcome, Failed)
    assert outcome.error.code == "attempts_exhausted"
    assert ran == []
