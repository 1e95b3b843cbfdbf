"""Retry and fork: new tasks that continue old ones."""

import pytest

from agent.core.ids import new_id
from agent.core.state_machine import CallStatus
from agent.core.waits import UnknownCall
from agent.steps.types.call_records import CallResult
from agent.steps.types.outcome import Failed, Retry, StepError, Succeeded, Waiting
from agent.tasks.commit.batch import Batch, JournalEntry
from agent.tasks.errors import RefusedError
from agent.tasks.worker.attempts import claim_of
from agent.workflows.compile.inputs import InputError
from agent.workflows.graph import Fanout
from tests.support.approvals import resolve
from tests.support.engine import ERROR, FAILURE, Engine, Hand, graph, most_at_once, other, step
from tests.support.interventions import intend
from tests.support.step_functions import Gate, runs


def test_a_retry_keeps_succeeded_steps_and_runs_the_rest(engine: Engine) -> None:
    """Succeeded steps keep their outputs; failed and never-run ones run."""
    gate = Gate()
    token = gate.name
    first = engine.run(
        graph(
            step("done", "record", given={"token": token, "value": 7}),
            step("skipped", after=["done"], condition="1 > 2"),
            step("bad", "fail_while_shut", after=["skipped"], given={"gate": token, "value": 8}),
            step(
                "sum",
                "echo",
                after=["bad"],
                refers_to=["done"],
                given={"value": "{{ steps.done.output + steps.bad.output }}"},
            ),
        ),
        given={"x": 1},
    )
    assert first["status"] == "failed"
    gate.open()
    answer = engine.operator.retry(first["id"])
    again = engine.wait(answer.task_id, "succeeded", "failed")
    assert again["output"] == {"sum": 15}
    assert again["retry_of"] == first["id"] and again["origin"] == first["id"]
    assert again["input"] == {"x": 1}
    assert [name for name, _, _ in runs[token]] == ["done", "bad", "bad"]
    assert engine.types(again["id"], "done") == ["step.kept"]
    assert engine.types(again["id"], "skipped") == ["step.kept"]
    assert engine.document(first["id"])["status"] == "failed", "nothing leaves a terminal state"


def test_a_retry_of_a_retry_keeps_the_origin(hand: Hand) -> None:
    """However often a task is retried, remotes get the keys of the first one."""
    first = hand.start(graph(step("a")))
    hand.fail("a")
    second = hand.operator.retry(first).task_id
    hand.commit()
    hand.fail("a")
    third = hand.operator.retry(second).task_id
    assert hand.document(third)["origin"] == first
    hand.commit()
    hand.succeed("a")
    assert hand.status(third) == "succeeded"


@pytest.mark.parametrize("fail_fast", [True, False])
def test_a_retry_runs_only_the_failed_items(engine: Engine, fail_fast: bool) -> None:
    """Succeeded items are kept with their indexes; the others obey the concurrency limit."""
    gate = Gate()
    group = step(
        "each",
        "odd_fails_while_shut",
        fanout=Fanout(count=12, concurrency=2),
        given={"gate": gate.name, "value": "{{ item }}"},
    )
    first = engine.run(graph(group, fail_fast=fail_fast))
    assert first["status"] == "failed"
    well = {row["parallel_index"] for row in first["steps"] if row["status"] == "succeeded"} - {
        None
    }
    runs[gate.name].clear()
    gate.open()
    again = engine.wait(engine.operator.retry(first["id"]).task_id, "succeeded", "failed")
    assert again["output"] == {"each": [number * 10 for number in range(12)]}
    assert sorted(runs[gate.name]) == sorted(set(range(12)) - well)
    assert most_at_once(engine.events(again["id"]), lambda name: "[" in name) == 2


def test_a_retried_groups_items_share_the_tasks_concurrency_limit(hand: Hand) -> None:
    """Inherited items wait for slots like any other, and another failure ends the group."""
    group = graph(step("each", fanout=Fanout(count=5)), step("z"), max_parallel=2, fail_fast=False)
    first = hand.start(group)
    hand.settle({"each": Succeeded(items=[0, 1, 2, 3, 4]), "z": Succeeded()})
    while hand.names():
        hand.settle(dict.fromkeys(hand.names(), FAILURE))
    assert hand.status(first) == "failed"
    second = hand.operator.retry(first).task_id
    hand.commit()
    seen = []
    while hand.names():
        assert len(hand.names()) <= 2
        name = hand.names()[0]
        seen.append(name)
        hand.settle({name: FAILURE if name == "each[3]" else Succeeded(name)})
    assert seen == [f"each[{number}]" for number in range(5)]
    assert hand.status(second) == "failed"
    third = hand.operator.retry(second).task_id
    hand.commit()
    assert hand.names() == ["each[3]"]
    hand.succeed("each[3]")
    assert hand.status(third) == "succeeded"


def test_a_failure_in_a_retried_group_skips_items_held_back(hand: Hand) -> None:
    """With fail_fast, inherited items that have not begun are skipped when one fails again."""
    windowed = step("each", fanout=Fanout(count=4, concurrency=1))
    first = hand.start(graph(windowed, fail_fast=True))
    hand.settle({"each": Succeeded(items=[0, 1, 2, 3])})
    hand.operator.cancel(first)
    hand.running.clear()
    second = hand.operator.retry(first).task_id
    hand.commit()
    assert hand.names() == ["each[0]"]
    hand.succeed("each[0]")
    hand.fail("each[1]")
    assert hand.status(second) == "failed"
    assert hand.statuses(second)["each"] == "failed"


def test_a_retry_inherits_unknown_calls(hand: Hand) -> None:
    """An effect that may have happened is inherited; no retry starts while it may be under way."""
    first = hand.start(graph(step("pay")))
    call_id = intend(hand, hand.claimed("pay"))
    with hand.database.connect("writer") as tx, tx.transaction():
        tx.execute(
            "UPDATE tool_calls SET expires_at = :then WHERE id = :id",
            then=hand.clock.now() + 3_600_000_000,
            id=call_id,
        )
    hand.settle({"pay": Failed(StepError("gone", "unknown", "it is not known"))})
    with pytest.raises(RefusedError, match="may still be under way"):
        hand.operator.retry(first)
    hand.skip(3700)
    second = hand.operator.retry(first).task_id
    hand.commit()
    (call,) = hand.claimed("pay", second).calls
    assert (call.status, call.number, call.on_unknown) == ("unknown", 1, "ask")
    hand.settle({"pay": Waiting(UnknownCall(call.call_id))})
    resolve(hand.database, second, "pay", "done", {"paid": True})
    hand.commit()
    assert [known.response for known in hand.claimed("pay", second).calls] == [{"paid": True}]
    hand.succeed("pay")


def test_a_retry_inherits_an_unknown_call_before_a_failure(hand: Hand) -> None:
    """A failed later attempt says nothing about the first call, which may have happened."""
    first = hand.start(graph(step("pay")))
    intend(hand, hand.claimed("pay"), on_unknown="retry")
    hand.settle({"pay": Retry(ERROR, is_unknown=True)})
    hand.commit()
    claimed = hand.claimed("pay")
    call_id = intend(hand, claimed, on_unknown="retry")
    ((key,),) = hand.rows("SELECT idempotency_key FROM tool_calls WHERE id = :id", id=call_id)
    refused = StepError("status_401", "remote", "no", is_final=True)
    result = CallResult(call_id, key, CallStatus.FAILED, error=refused)
    hand.commit(Batch(entries=[JournalEntry(claim_of(claimed), claimed.graph, result=result)]))
    hand.settle({"pay": Failed(refused)})
    again = hand.operator.retry(first).task_id
    hand.commit()
    (call,) = hand.claimed("pay", again).calls
    assert (call.status, call.attempt, call.error) == ("unknown", 0, None)
    hand.succeed("pay")


def test_a_retry_inherits_no_failed_calls(hand: Hand) -> None:
    """A retry repeats calls that failed for good."""
    first = hand.start(graph(step("pay")))
    claimed = hand.claimed("pay")
    call_id = intend(hand, claimed)
    ((key,),) = hand.rows("SELECT idempotency_key FROM tool_calls WHERE id = :id", id=call_id)
    refused = StepError("status_401", "remote", "no", is_final=True)
    result = CallResult(call_id, key, CallStatus.FAILED, error=refused)
    hand.commit(Batch(entries=[JournalEntry(claim_of(claimed), claimed.graph, result=result)]))
    hand.settle({"pay": Failed(refused)})
    again = hand.operator.retry(first).task_id
    hand.commit()
    assert hand.claimed("pay", again).calls == []
    hand.succeed("pay")


def test_a_cancelled_task_can_be_retried(engine: Engine) -> None:
    """Ended steps are kept; running steps run again."""
    gate = Gate()
    held = graph(
        step("a", "record", given={"token": gate.name + "a"}),
        step("b", "gated", after=["a"], given={"gate": gate.name, "value": 2}),
    )
    task_id = engine.submit(held)
    engine.wait_step(task_id, "b", "running")
    engine.operator.cancel(task_id)
    gate.open()
    again = engine.wait(engine.operator.retry(task_id).task_id, "succeeded")
    assert again["output"] == {"b": 2}
    assert len(runs[gate.name + "a"]) == 1


def test_a_fork_runs_a_step_and_its_downstream_again_with_edited_input(engine: Engine) -> None:
    """Upstream steps are kept; the input is the old one with the edits, and is validated."""
    token = Gate().name
    inputs = {"x": {"type": "integer", "default": 1}, "y": {"type": "integer", "default": 2}}
    forked = graph(
        step("a", "record", given={"token": token, "value": "{{ inputs.x }}"}),
        step("b", "echo", after=["a"], given={"value": "{{ steps.a.output + inputs.y }}"}),
        step("c", "record", given={"token": token, "value": "{{ inputs.x }}"}),
        inputs=inputs,
    )
    first = engine.run(forked, given={"x": 1, "y": 2})
    assert first["output"] == {"b": 3, "c": 1}
    with pytest.raises(InputError):
        engine.operator.fork(first["id"], "b", {"y": "many"})
    answer = engine.operator.fork(first["id"], "b", {"x": 100, "y": 50})
    second = engine.wait(answer.task_id, "succeeded")
    assert second["output"] == {"b": 51, "c": 1}, "a and c are kept as they were"
    assert second["input"] == {"x": 100, "y": 50}
    assert (second["forked_from"], second["origin"]) == (first["id"], second["id"])
    assert len(runs[token]) == 2
    assert "task.forked" in engine.types(first["id"])
    assert "effects" not in answer.message


def test_a_fork_names_the_effects_that_it_repeats(engine: Engine) -> None:
    """The answer lists the steps whose effects will happen a second time; keys are new."""
    token = Gate().name
    runs[token].append("primed")
    task = graph(
        step("a"),
        step("pay", "cut_off", after=["a"], given={"token": token}),
        step("z", after=["pay"]),
    )
    first = engine.run(task)
    assert first["status"] == "succeeded"
    answer = engine.operator.fork(first["id"], "a")
    assert answer.message.endswith("it will repeat the effects of: pay")
    assert "effects" not in engine.operator.fork(first["id"], "z").message
    engine.wait(answer.task_id, "succeeded")
    assert len(runs[token]) == 3
    remotes = engine.rows("SELECT DISTINCT remote_key FROM tool_calls")
    assert len(remotes) == 2


def test_a_fork_names_a_command_that_failed(engine: Engine) -> None:
    """A command that ended with an exit code other than 0 may have acted."""
    command = other("pay", "shell", config={"argv": ["sh", "-c", "exit 3"]})
    first = engine.run(graph(command, step("z", after=["pay"])))
    assert first["status"] == "failed"
    answer = engine.operator.fork(first["id"], "pay")
    assert answer.message.endswith("it will repeat the effects of: pay")
    engine.wait(answer.task_id, "failed")


def test_a_fork_names_repeated_effects_of_other_branches(engine: Engine) -> None:
    """Steps elsewhere that began and did not end run again too, with their effects."""
    token = Gate().name
    both = graph(step("a"), step("pay", "cut_off", given={"token": token}), step("z", after=["a"]))
    task_id = engine.submit(both)
    engine.wait_step(task_id, "z", "succeeded")
    engine.wait_step(task_id, "pay", "waiting")
    answer = engine.operator.fork(task_id, "z")
    assert answer.message.endswith("it will repeat the effects of: pay")
    engine.wait(answer.task_id, "succeeded")
    assert len(runs[token]) == 2
    engine.operator.cancel(task_id)


def test_a_retried_clean_up_group_repeats_no_effect(engine: Engine) -> None:
    """New items of a group inherit the calls of their indexes, over any number of retries."""
    token = new_id()
    tidy = step(
        "tidy",
        "act",
        ["broken"],
        given={"token": token},
        run_on="failure",
        fanout=Fanout(count=2, concurrency=1),
    )
    task_id = engine.run(graph(step("broken", "fail"), tidy))["id"]
    assert len(runs[token]) == 2
    for _ in range(2):
        task_id = engine.operator.retry(task_id).task_id
        engine.wait(task_id, "failed")
        assert engine.statuses(task_id)["tidy"] == "succeeded"
    assert len(runs[token]) == 2
