"""Pause, resume and cancel by another process while attempts are in flight."""

import pytest

from agent.core.state_machine import CallStatus
from agent.core.waits import UnknownCall
from agent.steps.types.call_records import CallResult
from agent.steps.types.outcome import Paused, Succeeded, Waiting
from agent.store.read import health
from agent.tasks.commit.batch import Batch, JournalEntry
from agent.tasks.errors import RefusedError
from agent.tasks.worker.attempts import claim_of
from agent.workflows.graph import Fanout
from tests.support.approvals import resolve
from tests.support.engine import FAILURE, Engine, Hand, eventually, graph, other, settle_of, step
from tests.support.interventions import intend
from tests.support.statements import record_statements
from tests.support.step_functions import Gate, runs


def test_pause_lets_an_attempt_finish_and_starts_nothing_new(engine: Engine) -> None:
    """A running attempt ends and is recorded; its successor starts only after resume."""
    gate = Gate()
    task_id = engine.submit(
        graph(
            step("a", "stubborn", given={"gate": gate.name, "value": 1}),
            step("b", "echo", after=["a"], given={"value": "{{ steps.a.output + 1 }}"}),
        )
    )
    eventually(lambda: gate.entered == 1)
    assert engine.operator.pause(task_id, "lunch").is_changed
    gate.open()
    engine.wait_step(task_id, "a", "succeeded")
    document = engine.document(task_id)
    assert (document["status"], document["pause_reason"]) == ("paused", "lunch")
    assert engine.statuses(task_id)["b"] == "pending"
    assert engine.operator.resume(task_id).is_changed
    assert engine.wait(task_id, "succeeded")["output"] == {"b": 2}
    types = engine.types(task_id)
    assert types.index("task.resumed") < len(types) - 1 - types[::-1].index("step.claimed")


def test_pause_reaches_an_attempt_at_its_next_checkpoint(engine: Engine) -> None:
    """The attempt stops where it saved, and after resume continues from there."""
    gate = Gate()
    task_id = engine.submit(graph(step("a", "saving", given={"gate": gate.name})))
    eventually(lambda: gate.entered == 1)
    engine.operator.pause(task_id)
    paused = engine.wait_step(task_id, "a", "paused")
    assert paused["attempt"] == 1
    eventually(lambda: engine.worker.running == 0, "a paused step holds no slot")
    engine.operator.resume(task_id)
    eventually(lambda: gate.entered == 2)
    gate.open()
    output = engine.wait(task_id, "succeeded")["output"]["a"]
    assert output["begun_at"] > 0 and output["attempt"] == 1
    assert "step.paused" in engine.types(task_id) and "step.resumed" in engine.types(task_id)


def test_a_pause_that_was_lifted_does_not_stop_the_step(hand: Hand) -> None:
    """An attempt that stopped for a pause which is over by then becomes pending at once."""
    task_id = hand.start(graph(step("a")))
    hand.operator.pause(task_id)
    hand.operator.resume(task_id)
    hand.settle({"a": Paused(7)})
    claimed = hand.claimed("a")
    assert (claimed.attempt, claimed.checkpoint) == (1, 7)
    hand.succeed("a")
    assert hand.status(task_id) == "succeeded"


def test_timers_that_pass_during_a_pause_take_effect_on_resume(engine: Engine) -> None:
    """A timer of a paused task wakes its step right after the resume, and not before."""
    task_id = engine.submit(graph(other("wait", "wait", config={"duration": "1h"})))
    engine.wait_step(task_id, "wait", "waiting")
    engine.operator.pause(task_id)
    engine.skip(7200)
    other_id = engine.submit(graph(step("a"), name="elsewhere"))
    engine.wait(other_id, "succeeded")
    assert engine.statuses(task_id) == {"wait": "waiting"}
    engine.operator.resume(task_id)
    engine.wait(task_id, "succeeded")


def test_cancel_interrupts_what_is_in_flight(engine: Engine) -> None:
    """Coroutines are interrupted, threads see that they should stop; nothing moves afterwards."""
    gate, heeding = Gate(), Gate()
    task_id = engine.submit(
        graph(
            step("a", "gated", given={"gate": gate.name}),
            step("b", "heeding", given={"gate": heeding.name}),
            step("c", after=["a"]),
            step("sweep", after=["a"], run_on="always"),
        )
    )
    eventually(lambda: gate.entered == 1 and heeding.entered == 1)
    assert engine.operator.cancel(task_id, "enough").is_changed
    eventually(lambda: engine.worker.running == 0, "the slots are free again")
    assert runs[heeding.name] == ["stopped"]
    assert engine.status(task_id) == "canceled"
    assert engine.statuses(task_id) == dict.fromkeys(("a", "b", "c", "sweep"), "pending")
    assert engine.run(graph(step("a"), name="elsewhere"))["status"] == "succeeded"


def test_a_late_outcome_after_cancel_is_only_logged(engine: Engine) -> None:
    """An attempt that succeeds after its task was cancelled leaves an event and nothing else."""
    gate = Gate()
    given = {"gate": gate.name, "value": "too late"}
    task_id = engine.submit(graph(step("a", "stubborn", given=given), step("b", after=["a"])))
    eventually(lambda: gate.entered == 1)
    engine.operator.cancel(task_id)
    before = engine.rows("SELECT * FROM steps WHERE task_id = :id ORDER BY id", id=task_id)
    gate.open()
    late = eventually(
        lambda: [
            data
            for kind, _, _, data in engine.events(task_id)
            if kind == "step.abandoned" and data is not None
        ]
    )
    assert late[0]["outcome"] == "succeeded" and late[0]["attempt"] == 1
    assert engine.rows("SELECT * FROM steps WHERE task_id = :id ORDER BY id", id=task_id) == before
    assert engine.status(task_id) == "canceled"


def test_an_outcome_under_an_old_claim_changes_nothing(hand: Hand) -> None:
    """A second outcome of an attempt, or one of an earlier attempt, is only logged."""
    task_id = hand.start(graph(step("a"), step("b", after=["a"])))
    old = hand.claimed("a")
    hand.settle({"a": Paused(1)})
    assert hand.claimed("a").claim_token == old.claim_token + 1
    (late,) = hand.commit(Batch(completions=[settle_of(old, FAILURE)])).result.settled
    assert late[1] is False
    assert hand.statuses(task_id) == {"a": "running", "b": "pending"}
    hand.succeed("a")
    hand.succeed("b")
    assert hand.status(task_id) == "succeeded"


def test_a_late_result_resolves_the_ledger_and_wakes_no_step_of_an_ended_task(hand: Hand) -> None:
    """A call's result is recorded in any state of its task; a cancelled task does not change."""
    task_id = hand.start(graph(step("pay")))
    claimed = hand.claimed("pay")
    call_id = intend(hand, claimed)
    hand.settle({"pay": Waiting(UnknownCall(call_id))})
    hand.operator.cancel(task_id)
    ((key,),) = hand.rows("SELECT idempotency_key FROM tool_calls WHERE id = :id", id=call_id)
    result = CallResult(call_id, key, CallStatus.SUCCEEDED, {"paid": True})
    hand.commit(Batch(entries=[JournalEntry(claim_of(claimed), claimed.graph, result=result)]))
    assert hand.rows("SELECT status FROM idempotency_outcomes") == [("succeeded",)]
    assert "tool_call.succeeded" in hand.types(task_id)
    assert hand.statuses(task_id) == {"pay": "waiting"}


def test_a_late_result_wakes_the_step_that_waits_on_it(hand: Hand) -> None:
    """A step that asks about an unknown call goes on when the result arrives late."""
    task_id = hand.start(graph(step("pay")))
    claimed = hand.claimed("pay")
    call_id = intend(hand, claimed)
    hand.settle({"pay": Waiting(UnknownCall(call_id))})
    ((key,),) = hand.rows("SELECT idempotency_key FROM tool_calls WHERE id = :id", id=call_id)
    result = CallResult(call_id, key, CallStatus.SUCCEEDED, {"paid": True})
    hand.commit(Batch(entries=[JournalEntry(claim_of(claimed), claimed.graph, result=result)]))
    hand.commit()
    again = hand.claimed("pay")
    assert [call.response for call in again.calls] == [{"paid": True}]
    hand.settle({"pay": Succeeded({"paid": True})})
    assert hand.status(task_id) == "succeeded"


def test_a_result_before_the_wait_wakes_the_step_at_once(hand: Hand) -> None:
    """Settling a wait checks under the lock whether the result is already there."""
    hand.start(graph(step("pay")))
    claimed = hand.claimed("pay")
    call_id = intend(hand, claimed)
    ((key,),) = hand.rows("SELECT idempotency_key FROM tool_calls WHERE id = :id", id=call_id)
    result = CallResult(call_id, key, CallStatus.SUCCEEDED, 1)
    hand.commit(
        Batch(
            entries=[JournalEntry(claim_of(claimed), claimed.graph, result=result)],
            completions=[settle_of(claimed, Waiting(UnknownCall(call_id)))],
        )
    )
    if hand.names() == []:
        hand.commit()
    assert hand.names() == ["pay"], "an early answer is not lost"


def test_an_unknown_effect_of_an_item_names_the_item(hand: Hand) -> None:
    """The question and `doctor` name the item as `resolve` takes it; the group is refused."""
    task_id = hand.start(graph(step("pay", fanout=Fanout(items=[1, 2]))))
    hand.settle({"pay": Succeeded(items=[1, 2])})
    hand.commit()
    calls = {name: intend(hand, hand.claimed(name)) for name in ("pay[0]", "pay[1]")}
    hand.settle({name: Waiting(UnknownCall(call)) for name, call in calls.items()})
    with hand.database.connect("reader") as connection:
        found = health.unknown_calls(connection)
    assert found == [(task_id, "pay[0]", "pay#1"), (task_id, "pay[1]", "pay#1")]
    questions = hand.rows("SELECT message FROM approvals")
    assert sum("of step pay[1] started" in question for (question,) in questions) == 1
    with pytest.raises(RefusedError, match=r"resolve one of its items, as in 'pay\[0\]'"):
        resolve(hand.database, task_id, "pay", "done")
    assert resolve(hand.database, task_id, "pay[1]", "done").is_changed


def test_the_doctors_limited_lists_are_ordered(hand: Hand) -> None:
    """What a limit leaves out does not depend on where the rows are stored."""
    with hand.database.connect("reader") as connection:
        asked = record_statements(connection)
        health.unknown_calls(connection)
        health.stuck_tasks(connection)
    limited = [sql for sql in asked if " LIMIT " in sql]
    assert len(limited) == 2
    assert [sql for sql in limited if " ORDER BY " not in sql] == []


@pytest.mark.parametrize("is_late", [True, False])
def test_a_lost_claim_records_neither_intent_nor_checkpoint(hand: Hand, is_late: bool) -> None:
    """An attempt of a cancelled task may still ask for both."""
    task_id = hand.start(graph(step("a")))
    claimed = hand.claimed("a")
    if is_late:
        hand.operator.cancel(task_id)
    intend(hand, claimed)
    saved = JournalEntry(claim_of(claimed), claimed.graph, checkpoint="1")
    hand.commit(Batch(entries=[saved]))
    ((checkpoint,),) = hand.rows("SELECT checkpoint FROM steps WHERE task_id = :id", id=task_id)
    recorded = len(hand.rows("SELECT 1 FROM tool_calls"))
    assert (recorded, checkpoint) == ((0, None) if is_late else (1, "1"))
    hand.running.clear()
