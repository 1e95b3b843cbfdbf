from datetime import UTC, datetime

from agent.clock import SECOND
from agent.steps.outcome import Failed, Succeeded, Waiting
from tests.steps.harness import Trial, run


def test_a_duration_is_waited_once_also_when_woken_early() -> None:
    """The instant is fixed by the first attempt; after it the step succeeds."""
    trial = Trial("wait", {"duration": "1h30m"})
    first = run(trial.attempt())
    assert isinstance(first, Waiting)
    assert first.wake_at is not None
    assert first.on == {"timer": first.wake_at}
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
    assert run(trial.attempt()) == Waiting({"signal": "go"})
    trial.waited = {"signal": "go", "value": {"speed": 3}}
    assert run(trial.attempt()) == Succeeded({"speed": 3})
    trial.waited = {"signal": "go", "value": None}
    assert run(trial.attempt()) == Succeeded()


def test_a_child_is_asked_for_and_its_end_taken() -> None:
    """The step asks for the child with its rendered input, and ends as the child did."""
    trial = Trial("workflow", {"name": "other", "with": {"n": "{{ inputs.n }}"}}, inputs={"n": 2})
    asked = {"child": {"workflow": "other", "input": {"n": 2}}}
    assert run(trial.attempt()) == Waiting(asked)
    trial.waited = {"child": "c1", "status": "succeeded", "output": [1]}
    assert run(trial.attempt()) == Succeeded([1])
    trial.waited = {"child": "c1", "status": "failed", "error": {"message": "no luck"}}
    outcome = run(trial.attempt())
    assert isinstance(outcome, Failed)
    assert outcome.error.kind == "child"
    assert "no luck" in outcome.error.message
    trial.waited = {"child": "c1", "status": "lost"}
    assert isinstance(run(trial.attempt()), Failed)
