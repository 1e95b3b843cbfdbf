"""Withdrawn questions, and questions about effects whose outcome is unknown."""

import pytest

from agent.approvals import answering
from agent.approvals.answering import DecidedError, InvalidAnswerError
from agent.approvals.permission import ALL_SCOPES, NotAllowedError, Principal
from agent.core.state_machine import CallStatus
from agent.core.waits import UnknownCall
from agent.steps.types.call_records import CallResult
from agent.steps.types.outcome import Waiting
from agent.tasks.commit.batch import Batch, JournalEntry
from agent.tasks.errors import RefusedError
from agent.tasks.worker.attempts import claim_of
from tests.support.approvals import asked, everything, gated, parked, pending, resolve, say, token
from tests.support.engine import Engine, Hand, eventually, graph, other, step
from tests.support.interventions import intend
from tests.support.step_functions import Gate, runs


def test_cancelling_a_task_withdraws_its_question(engine: Engine) -> None:
    """A later answer is refused with that reason."""
    counted = token()
    task_id, approval = asked(engine, gated("pay", counted))
    engine.operator.cancel(task_id)
    assert [found["status"] for found in everything(engine, task_id)] == ["withdrawn"]
    with pytest.raises(DecidedError, match="withdrawn already"):
        say(engine, approval, "approve")
    assert "approval.withdrawn" in engine.types(task_id, "pay")
    assert engine.status(task_id) == "canceled"
    assert runs[counted] == []


def test_another_steps_failure_withdraws_the_question(engine: Engine) -> None:
    """With fail_fast, or at a deadline, a waiting step is skipped and its question withdrawn."""
    gate = Gate()
    failing = step("other", "gated_failure", given={"gate": gate.name})
    task_id, approval = asked(engine, gated("pay", token()), failing)
    gate.open()
    engine.wait(task_id, "failed")
    assert engine.statuses(task_id)["pay"] == "skipped"
    slow, _ = asked(engine, gated("pay", token()), timeout_seconds=1000)
    engine.skip(2000)
    engine.wait(slow, "failed")
    assert [found["status"] for found in everything(engine)] == ["withdrawn", "withdrawn"]
    assert everything(engine)[0]["id"] == approval["id"]


@pytest.mark.parametrize("verdict", ["done", "retry", "fail"])
def test_an_unknown_outcome_is_a_question_like_others(engine: Engine, verdict: str) -> None:
    """It is listed with the request, and answered with done, retry or fail."""
    counted = token()
    task_id = engine.submit(graph(step("pay", "cut_off", given={"token": counted})))
    eventually(lambda: engine.types(task_id).count("step.waiting") == 1)
    engine.skip(1000)
    (approval,) = eventually(lambda: pending(engine, task_id))
    assert approval["kind"] == "unknown"
    assert approval["request"]["action"] == "pay#1"
    assert approval["request"]["request"] == {"amount": 1}
    for value in ("maybe", {"verdict": "fail", "output": 1}, None, {"verdict": "done", "x": 1}):
        with pytest.raises(InvalidAnswerError, match="answer done, retry or fail"):
            say(engine, approval, "answer", value=value)
    with pytest.raises(InvalidAnswerError, match="answer it with done, retry or fail"):
        say(engine, approval, "approve")
    output = {"verdict": "done", "output": {"paid": True}}
    say(engine, approval, "answer", value=output if verdict == "done" else verdict)
    done = engine.wait(task_id, "failed" if verdict == "fail" else "succeeded")
    if verdict == "fail":
        assert done["error"]["code"] == "outcome_unknown"
    else:
        paid = {"paid": True} if verdict == "done" else {"acts": 2}
        assert done["output"] == {"pay": paid}
    assert len(runs[counted]) == (2 if verdict == "retry" else 1)
    (decided,) = everything(engine, task_id)
    assert decided["status"] == "answered"
    if verdict == "fail":
        # The step has ended, and what really happened can still be recorded.
        assert resolve(engine.database, task_id, "pay", "done").is_changed
    with pytest.raises(RefusedError):
        resolve(engine.database, task_id, "pay", "done")


def test_resolve_decides_the_same_record(hand: Hand) -> None:
    """`resolve` answers the question about the unknown effect; it is decided once."""
    task_id = hand.start(graph(step("pay")))
    call_id = intend(hand, hand.claimed("pay"))
    hand.settle({"pay": Waiting(UnknownCall(call_id))})
    (approval,) = pending(hand, task_id)
    resolve(hand.database, task_id, "pay", "done", 7, by="ada")
    (decided,) = everything(hand, task_id)
    assert decided["decision"]["by"] == "ada"
    assert decided["decision"]["value"] == {"verdict": "done", "output": 7}
    with pytest.raises(DecidedError, match="answered already by ada"):
        say(hand, approval, "answer", value="retry")
    hand.commit()
    assert [call.response for call in hand.claimed("pay").calls] == [7]


def test_a_late_result_withdraws_the_question(hand: Hand) -> None:
    """The step goes on with the result."""
    task_id = hand.start(graph(step("pay")))
    claimed = hand.claimed("pay")
    call_id = intend(hand, claimed)
    hand.settle({"pay": Waiting(UnknownCall(call_id))})
    ((key,),) = hand.rows("SELECT idempotency_key FROM tool_calls WHERE id = :id", id=call_id)
    result = CallResult(call_id, key, CallStatus.SUCCEEDED, 1)
    hand.commit(Batch(entries=[JournalEntry(claim_of(claimed), claimed.graph, result=result)]))
    assert [found["status"] for found in everything(hand, task_id)] == ["withdrawn"]


def test_a_denied_child_fails_the_step_that_waits_for_it(engine: Engine) -> None:
    """The parent notices the end of a child that an answer ended."""
    child, _ = asked(engine, gated("pay", token()), name="child")
    engine.operator.cancel(child)
    parent = engine.submit(graph(other("run", "workflow", config={"name": "child"}), name="parent"))
    (approval,) = eventually(lambda: pending(engine))
    say(engine, approval, "deny")
    assert engine.wait(parent, "failed")["error"]["class"] == "child"


@pytest.mark.parametrize("has_asked", [True, False])
@pytest.mark.parametrize("is_over", [True, False])
def test_who_may_approve_an_effect_may_say_what_became_of_it(
    hand: Hand, *, has_asked: bool, is_over: bool
) -> None:
    """Its gate names who: no other caller may have the effect made again, also after the task's end."""
    if has_asked:
        task_id = parked(hand, who=["terminal"])
        (approval,) = pending(hand, task_id)
        say(hand, approval, "approve")
        hand.commit()
    else:
        task_id = hand.start(graph(gated("pay", token(), who=["terminal"])))
    call_id = intend(hand, hand.claimed("pay", task_id))
    if is_over:
        hand.operator.cancel(task_id)
    else:
        hand.settle({"pay": Waiting(UnknownCall(call_id))}, task_id)
    phone = Principal("api", "phone", ALL_SCOPES)
    with pytest.raises(NotAllowedError, match="allowed: terminal"):
        answering.resolve(hand.database, task_id, "pay", "retry", principal=phone)
    assert resolve(hand.database, task_id, "pay", "retry").is_changed
