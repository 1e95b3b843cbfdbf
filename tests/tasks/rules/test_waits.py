"""Waits: retries, timers, signals, and questions to a person."""

import pytest

from agent import recovery
from agent.core.clock import SECOND
from agent.core.state_machine import CallStatus
from agent.core.waits import Signal, UnknownCall
from agent.steps.types.call_records import CallResult
from agent.steps.types.outcome import Retry, Succeeded, Waiting
from agent.tasks.commit.batch import Batch, JournalEntry
from agent.tasks.worker.attempts import claim_of
from agent.workflows.graph import RetryPolicy
from tests.support.approvals import resolve
from tests.support.engine import (
    ERROR,
    RETRY,
    Engine,
    Hand,
    eventually,
    graph,
    other,
    settle_of,
    step,
)
from tests.support.interventions import intend
from tests.support.step_functions import Gate, runs

DAY = 86_400


def wake_at(hand: Hand, task_id: str) -> int:
    """Return when a task's only step is due."""
    ((found,),) = hand.rows("SELECT wake_at FROM steps WHERE task_id = :id", id=task_id)
    return int(found)


def test_a_step_is_retried_until_it_succeeds(engine: Engine) -> None:
    """Each failed attempt counts; a success keeps no error of an earlier attempt."""
    done = engine.run(graph(step("a", "fail_before", given={"attempt": 3})))
    assert (done["status"], done["output"]) == ("succeeded", {"a": 3})
    (found,) = done["steps"]
    assert (found["attempt"], found["error"]) == (3, None)
    assert engine.types(done["id"], "a").count("step.retried") == 2


def test_attempts_stop_at_the_maximum(engine: Engine) -> None:
    """After max_attempts the step fails with its last error, and never runs again."""
    policy = RetryPolicy(max_attempts=4, delay_seconds=0)
    done = engine.run(graph(step("a", "fail_before", given={"attempt": 99}, retry=policy)))
    assert done["status"] == "failed"
    assert done["error"]["attempt"] == 4 and "attempt 4 is too early" in done["error"]["message"]
    assert engine.types(done["id"], "a").count("step.claimed") == 4
    once = RetryPolicy(max_attempts=1)
    done = engine.run(graph(step("a", "fail_before", given={"attempt": 2}, retry=once)))
    assert engine.types(done["id"], "a").count("step.claimed") == 1


def test_a_final_failure_is_not_retried(engine: Engine) -> None:
    """The step fails with its first attempt."""
    done = engine.run(graph(step("a", "fail")))
    assert done["status"] == "failed"
    assert engine.types(done["id"], "a").count("step.claimed") == 1


def test_backoff_doubles_and_no_retry_runs_early(hand: Hand) -> None:
    """Delays double up to their cap; a step is claimed when it is due, not before."""
    policy = RetryPolicy(
        max_attempts=5, delay_seconds=10, factor=2, max_delay_seconds=30, jitter=False
    )
    task_id = hand.start(graph(step("a", retry=policy)))
    for expected in (10, 20, 30, 30):
        before = hand.clock.now()
        hand.settle({"a": RETRY})
        after = hand.clock.now()
        delay = wake_at(hand, task_id)
        assert before + expected * SECOND <= delay <= after + expected * SECOND
        hand.commit()
        assert hand.names() == []
        hand.skip(expected + 1)
        hand.commit()
        assert hand.names() == ["a"]
    hand.settle({"a": RETRY})
    assert hand.status(task_id) == "failed"


def test_retry_after_is_a_lower_bound(hand: Hand) -> None:
    """`Retry-After` makes the delay longer, never shorter."""
    policy = RetryPolicy(max_attempts=5, delay_seconds=100, factor=1, jitter=False)
    task_id = hand.start(graph(step("a", retry=policy)))
    for asked, expected in ((500.0, 500), (1.0, 100)):
        before = hand.clock.now()
        hand.settle({"a": Retry(ERROR, delay_seconds=asked)})
        assert before + expected * SECOND <= wake_at(hand, task_id)
        assert wake_at(hand, task_id) <= hand.clock.now() + expected * SECOND
        hand.skip(expected + 1)
        hand.commit()


def test_a_step_sets_its_own_retry_delay(engine: Engine) -> None:
    """It is not tried before the delay that its function asked for."""
    task_id = engine.submit(graph(step("a", "asked_to_wait", given={"seconds": 3600})))
    eventually(lambda: engine.types(task_id, "a").count("step.retried") == 1)
    document = engine.document(task_id)
    assert document["activity"] == "waiting"
    engine.skip(3700)
    assert engine.wait(task_id, "succeeded")["output"] == {"a": 2}


def test_a_timer_holds_no_slot_and_wakes_when_due(engine: Engine) -> None:
    """A waiting step leaves its worker free."""
    task_id = engine.submit(
        graph(other("wait", "wait", config={"duration": "1h"}), step("b", after=["wait"]))
    )
    engine.wait_step(task_id, "wait", "waiting")
    eventually(lambda: engine.worker.running == 0)
    assert engine.status(task_id) == "running"
    engine.skip(3601)
    engine.wait(task_id, "succeeded")
    (waited,) = [found for found in engine.document(task_id)["steps"] if found["name"] == "wait"]
    assert waited["attempt"] == 1, "a wait is no attempt"


def test_a_wait_begun_while_the_clock_ran_ahead_takes_its_own_time(engine: Engine) -> None:
    """Once the clock is corrected it lasts its length from then on, and not the days of the error too."""
    engine.skip(6 * DAY)
    task_id = engine.submit(graph(other("wait", "wait", config={"duration": "1h"})))
    right = engine.submit(graph(other("wait", "wait", config={"duration": "9d"}), name="right"))
    engine.wait_step(task_id, "wait", "waiting")
    engine.wait_step(right, "wait", "waiting")
    engine.skip(-6 * DAY)
    begun_at = engine.database.clock.now()
    recovery.correct_waits(engine.database, engine.database.clock)
    eventually(lambda: engine.types(task_id).count("step.claimed") == 2)
    engine.wait_step(task_id, "wait", "waiting")
    ((until,),) = engine.rows("SELECT wake_at FROM steps WHERE task_id = :id", id=task_id)
    assert 3600 * SECOND <= until - begun_at < 3700 * SECOND
    engine.skip(3700)
    engine.wait(task_id, "succeeded")
    # A second correction changes nothing: the wait began before now.
    claims = engine.types(right).count("step.claimed")
    recovery.correct_waits(engine.database, engine.database.clock)
    assert engine.types(right).count("step.claimed") == claims == 2
    assert engine.status(right) == "running"


def test_a_retry_planned_while_the_clock_ran_ahead_comes_at_once(hand: Hand) -> None:
    """Its delay is shorter than the error of the clock."""
    hand.skip(6 * DAY)
    task_id = hand.start(graph(step("a", retry=RetryPolicy(max_attempts=5, delay_seconds=10))))
    hand.settle({"a": RETRY})
    hand.skip(-6 * DAY)
    hand.commit()
    assert hand.names() == []
    recovery.correct_waits(hand.database, hand.clock)
    hand.commit()
    assert hand.names(task_id) == ["a"]


def test_the_time_limit_of_a_task_started_while_the_clock_ran_ahead_counts_from_its_correction(
    hand: Hand,
) -> None:
    """It ends after its hour, and not after the days of the error too; a second correction adds nothing."""
    hand.skip(6 * DAY)
    task_id = hand.start(graph(step("a"), timeout_seconds=3600.0))
    hand.skip(-6 * DAY)
    corrected_at = hand.clock.now()
    for _ in range(2):
        recovery.correct_waits(hand.database, hand.clock)
        hand.skip(1700)
    columns = "SELECT deadline, next_wake_time FROM tasks WHERE id = :id"
    ((deadline, woken_at),) = hand.rows(columns, id=task_id)
    assert 0 <= deadline - corrected_at - 3600 * SECOND < 60 * SECOND
    assert woken_at <= deadline


def test_a_short_timer_wakes_without_other_events(engine: Engine) -> None:
    """Only the clock is needed to wake a step."""
    done = engine.run(graph(other("wait", "wait", config={"duration": "50ms"})))
    assert done["status"] == "succeeded"


def test_a_signal_is_taken_whether_it_arrives_late_or_early(engine: Engine) -> None:
    """A signal that no step waits for is kept; each is taken once, the oldest first."""
    gate = Gate()
    task_id = engine.submit(
        graph(
            step("first", "gated", given={"gate": gate.name}),
            other("a", "wait", after=["first"], config={"signal": "go"}),
            other("b", "wait", after=["a"], config={"signal": "go"}),
        )
    )
    assert engine.operator.signal(task_id, "go", {"n": 1}).message.startswith("kept")
    engine.operator.signal(task_id, "other", "not for them")
    gate.open()
    engine.wait_step(task_id, "b", "waiting")
    assert engine.steps(task_id)["a"]["output"] == {"n": 1}
    assert engine.operator.signal(task_id, "go", {"n": 2}).message == "step 'b' goes on"
    assert engine.wait(task_id, "succeeded")["output"] == {"b": {"n": 2}}


def test_one_signal_wakes_one_waiter(hand: Hand) -> None:
    """Two steps that wait for one name get one signal each."""
    go = {"signal": "go"}
    task_id = hand.start(graph(other("a", "wait", config=go), other("b", "wait", config=go)))
    hand.settle({"a": Waiting(Signal("go")), "b": Waiting(Signal("go"))})
    hand.operator.signal(task_id, "go", 1)
    assert sorted(hand.statuses(task_id).values()) == ["pending", "waiting"]
    hand.operator.signal(task_id, "go", 2)
    hand.commit()
    waited = [hand.claimed(name).waited for name in ("a", "b")]
    assert [found.result["value"] for found in waited if found is not None] == [1, 2]


@pytest.mark.parametrize("verdict", ["done", "retry", "fail"])
def test_a_person_resolves_an_unknown_effect(engine: Engine, verdict: str) -> None:
    """It is never repeated unasked: the step waits until a person decides."""
    token = Gate().name
    task_id = engine.submit(graph(step("pay", "cut_off", given={"token": token})))
    eventually(lambda: engine.types(task_id).count("step.waiting") == 1)
    engine.skip(4000)
    found = eventually(
        lambda: next(
            (
                found
                for found in engine.document(task_id)["steps"]
                if "unknown" in (found["waiting_on"] or {})
            ),
            None,
        )
    )
    assert found is not None and runs[token] == [1]
    assert engine.types(task_id).count("tool_call.unknown") == 1, (
        "emitted once, however often it is met"
    )
    if verdict == "done":
        answer = resolve(engine.database, task_id, "pay", "done", {"paid": True})
        assert engine.wait(task_id, "succeeded")["output"] == {"pay": {"paid": True}}
    elif verdict == "retry":
        answer = resolve(engine.database, task_id, "pay", "retry")
        assert engine.wait(task_id, "succeeded")["output"] == {"pay": {"acts": 2}}
    else:
        answer = resolve(engine.database, task_id, "pay", "fail")
        done = engine.wait(task_id, "failed")
        assert done["error"]["code"] == "outcome_unknown"
    assert answer.is_changed
    assert len(runs[token]) == (2 if verdict == "retry" else 1)


def test_an_effect_cut_off_while_the_clock_ran_ahead_is_asked_about_in_its_own_time(
    engine: Engine,
) -> None:
    """Once the clock is corrected, the request may be under way for as long as it may take, and no day longer."""
    token = Gate().name
    engine.skip(6 * DAY)
    task_id = engine.submit(graph(step("pay", "cut_off", given={"token": token})))
    eventually(lambda: engine.types(task_id).count("step.waiting") == 1)
    engine.skip(-6 * DAY)
    recovery.correct_waits(engine.database, engine.database.clock)
    eventually(lambda: engine.types(task_id).count("step.waiting") == 2)
    assert "tool_call.unknown" not in engine.types(task_id)[-2:], "it waits once more"
    engine.skip(4000)
    eventually(lambda: "approval.requested" in engine.types(task_id))
    assert runs[token] == [1]


def test_a_repeatable_call_is_repeated_after_an_unknown(engine: Engine) -> None:
    """With `on_unknown: retry` the next attempt makes the call again without a question."""
    token = Gate().name
    given = {"token": token, "on_unknown": "retry"}
    task_id = engine.submit(graph(step("pay", "cut_off", given=given)))
    eventually(lambda: engine.types(task_id).count("step.waiting") == 1)
    engine.skip(4000)
    done = engine.wait(task_id, "succeeded")
    assert done["output"] == {"pay": {"acts": 2}}
    assert runs[token] == [1, 2]


@pytest.mark.parametrize("is_one_commit", [False, True], ids=["before", "with it"])
def test_no_step_succeeds_by_a_call_that_failed(hand: Hand, is_one_commit: bool) -> None:
    """An attempt finds that its unknown call happened, after its late failure: the record wins."""
    task_id = hand.start(graph(step("a")))
    first = hand.claimed("a")
    call_id = intend(hand, first)
    hand.settle({"a": Retry(ERROR, 0, is_unknown=True)})
    second = hand.claimed("a")
    ((key,),) = hand.rows("SELECT idempotency_key FROM tool_calls WHERE id = :id", id=call_id)
    failure = CallResult(call_id, key, CallStatus.FAILED, error=ERROR)
    finding = CallResult(call_id, key, CallStatus.SUCCEEDED, 1, is_resolved_by_check=True)
    late = JournalEntry(claim_of(first), first.graph, result=failure)
    found = JournalEntry(claim_of(second), second.graph, result=finding)
    success = settle_of(second, Succeeded(1, idempotency_key=key))
    if is_one_commit:
        hand.commit(Batch(entries=[late, found], completions=[success]))
    else:
        hand.commit(Batch(entries=[late]))
        hand.commit(Batch(entries=[found]))
        hand.commit(Batch(completions=[success]))
    assert hand.types(task_id, "a")[-1] == "step.returned"
    hand.skip(2)
    hand.commit()
    (known,) = hand.claimed("a").calls
    assert known.status == CallStatus.FAILED
    assert known.error is not None and known.error["code"] == ERROR.code
    hand.succeed("a")
    assert hand.status(task_id) == "succeeded"


@pytest.mark.parametrize("is_one_commit", [False, True], ids=["before", "with it"])
def test_no_question_is_asked_about_a_call_with_a_late_result(
    hand: Hand, is_one_commit: bool
) -> None:
    """The result may arrive while the next attempt decides to ask: the result wins."""
    task_id = hand.start(graph(step("a")))
    first = hand.claimed("a")
    call_id = intend(hand, first)
    hand.settle({"a": Retry(ERROR, 0, is_unknown=True)})
    second = hand.claimed("a")
    ((key,),) = hand.rows("SELECT idempotency_key FROM tool_calls WHERE id = :id", id=call_id)
    result = CallResult(call_id, key, CallStatus.SUCCEEDED, "paid")
    late = JournalEntry(claim_of(first), first.graph, result=result)
    asking = settle_of(second, Waiting(UnknownCall(call_id)))
    if is_one_commit:
        hand.commit(Batch(entries=[late], completions=[asking]))
    else:
        hand.commit(Batch(entries=[late]))
        hand.commit(Batch(completions=[asking]))
    if hand.names() == []:
        hand.commit()
    (known,) = hand.claimed("a").calls
    assert known.response == "paid"
    assert hand.rows("SELECT 1 FROM approvals WHERE status = 'pending'") == []
    hand.succeed("a")
    assert hand.status(task_id) == "succeeded"
