"""Retries of tasks with children: no child repeats its effects, at any depth."""

from typing import Any

import pytest

from agent.core.ids import new_id
from agent.core.waits import Child, ChildRequest
from agent.steps.types.outcome import Failed, StepError, Succeeded, Waiting
from agent.tasks.errors import RefusedError
from agent.workflows.graph import Fanout, Graph
from tests.support.agent_steps import MODELS, agent, uses
from tests.support.child_tasks import child_of, parent, register
from tests.support.engine import Engine, Hand, Start, eventually, graph, other, step
from tests.support.interventions import intend
from tests.support.step_functions import Gate, runs

ASKED = Waiting(ChildRequest("child", {}))


def paying(gate: Gate, name: str = "child", **options: Any) -> Graph:
    """Return a workflow that acts, and then fails until a gate opens; the gate's name is its token."""
    return graph(
        step("pay", "act", given={"token": gate.name + "paid"}),
        step("tell", "fail_while_shut", ["pay"], given={"gate": gate.name, "value": "told"}),
        name=name,
        inputs={"n": {"default": 0}},
        output="{{ steps.tell.output }}",
        **options,
    )


def retried(engine: Engine, task_id: str, *statuses: str) -> dict[str, Any]:
    """Retry a task and wait for its end."""
    ends = statuses or ("succeeded", "failed")
    return engine.wait(engine.operator.retry(task_id).task_id, *ends)


@pytest.mark.parametrize("is_deep", [False, True], ids=["child", "grandchild"])
def test_a_retry_continues_the_failed_child(engine: Engine, is_deep: bool) -> None:
    """Its succeeded steps are kept, at every depth, and its effects are not repeated."""
    gate = Gate()
    register(engine, paying(gate))
    if is_deep:
        inner = other("run", "workflow", config={"name": "child"})
        between = graph(inner, name="between", inputs={"n": {"default": 0}})
        register(engine, between)
    first = engine.run(parent("between" if is_deep else "child"))
    assert first["status"] == "failed"
    gate.open()
    again = retried(engine, first["id"])
    assert again["status"] == "succeeded"
    assert "told" in str(again["output"])
    assert len(runs[gate.name + "paid"]) == 1
    (before,), (child,) = first["children"], again["children"]
    found = engine.document(child)
    assert (found["retry_of"], found["parent"]) == (before, again["id"])
    assert found["trigger"]["parent"] == again["id"]
    depths = engine.rows("SELECT depth FROM tasks WHERE id IN (:a, :b)", a=before, b=child)
    assert depths == [(1,), (1,)]


def test_a_retry_of_a_retry_continues_the_last_child(start: Start) -> None:
    """Also if a retry between was cancelled before it had a child."""
    engine = start()
    gate = Gate()
    register(engine, paying(gate))
    task_id = engine.run(parent("child"))["id"]
    task_id = retried(engine, task_id, "failed")["id"]
    engine.stop()
    blocked = engine.operator.retry(task_id).task_id
    engine.operator.cancel(blocked)
    gate.open()
    assert retried(start(), blocked)["status"] == "succeeded"
    assert len(runs[gate.name + "paid"]) == 1


def test_a_childs_unknown_effect_is_put_to_a_person(hand: Hand) -> None:
    """The new child inherits the unknown calls of the earlier one, and repeats nothing by itself."""
    register(hand, graph(step("pay"), name="child"))
    first = hand.start(parent("child"))
    hand.settle({"run": ASKED})
    intend(hand, hand.claimed("pay"))
    hand.settle({"pay": Failed(StepError("gone", "unknown", "it is not known"))})
    hand.skip(60)
    hand.commit()
    hand.settle({"run": Failed(StepError("child_failed", "child", "it failed"))})
    hand.operator.retry(first)
    hand.commit()
    hand.settle({"run": ASKED})
    (call,) = hand.claimed("pay").calls
    assert (call.status, call.attempt, call.on_unknown) == ("unknown", 0, "ask")


def test_a_childs_output_after_its_parents_cancel_is_used(hand: Hand) -> None:
    """A child that succeeded while its parent was cancelled does not run again."""
    register(hand, graph(step("c"), name="child"))
    first = hand.start(parent("child"))
    hand.settle({"run": ASKED})
    child_id = child_of(hand, first)
    hand.succeed("c")
    hand.operator.cancel(first)
    second = hand.operator.retry(first).task_id
    hand.commit()
    hand.settle({"run": ASKED}, second)
    claimed = hand.claimed("run", second)
    assert claimed.waited is not None
    assert (claimed.waited.on, claimed.waited.result["output"]) == (Child(child_id), {"c": "c"})
    hand.settle({"run": Succeeded(1)}, second)
    assert hand.document(second)["children"] == []


def test_each_item_continues_its_own_child(engine: Engine) -> None:
    """The children of a group keep their indexes."""
    gate = Gate()
    register(engine, paying(gate))
    each = other(
        "each", "workflow", config={"name": "child", "with": {"n": "{{ item }}"}},
        fanout=Fanout(items=[1, 2, 3]),
    )  # fmt: skip
    first = engine.run(graph(each, name="parent", fail_fast=False))
    assert first["status"] == "failed"
    gate.open()
    again = retried(engine, first["id"])
    assert again["output"] == {"each": ["told"] * 3}
    assert len(runs[gate.name + "paid"]) == 3
    inputs = [engine.document(child)["input"]["n"] for child in again["children"]]
    assert sorted(inputs) == [1, 2, 3]


def test_a_child_that_was_retried_separately_is_not_run_again(engine: Engine) -> None:
    """The result of its own retry counts; while that runs, nothing starts twice."""
    gate = Gate()
    register(engine, paying(gate))
    first = engine.run(parent("child"))
    gate.open()
    separate = retried(engine, first["children"][0])
    assert separate["status"] == "succeeded"
    again = retried(engine, first["id"])
    assert (again["status"], again["output"]) == ("succeeded", {"after": "told"})
    assert again["children"] == []
    assert len(runs[gate.name + "paid"]) == 1
    assert engine.rows("SELECT depth FROM tasks WHERE id = :id", id=separate["id"]) == [(1,)]


def test_a_child_that_is_being_retried_fails_the_step(hand: Hand) -> None:
    """The error names the running task; once it has ended, another retry takes its result."""
    register(hand, graph(step("c"), name="child"))
    first = hand.start(parent("child"))
    hand.settle({"run": ASKED})
    child_id = child_of(hand, first)
    hand.fail("c")
    hand.skip(60)
    hand.commit()
    hand.settle({"run": Failed(StepError("child_failed", "child", "it failed"))})
    separate = hand.operator.retry(child_id).task_id
    second = hand.operator.retry(first).task_id
    hand.commit()
    hand.settle({"run": ASKED}, second)
    error = hand.document(second)["error"]
    assert (error["code"], separate in error["message"]) == ("child_alive", True)
    hand.succeed("c", task_id=separate)


@pytest.mark.parametrize("has_acted", [True, False])
def test_a_child_with_another_input_is_not_continued(engine: Engine, has_acted: bool) -> None:
    """If the earlier child acted, the step fails with that reason; otherwise a new child starts."""
    token = new_id()
    work = "act" if has_acted else "record"
    child = graph(
        step("pay", work, given={"token": token}),
        step("bad", "fail", ["pay"]),
        name="child",
        inputs={"n": {"type": "string"}},
    )
    register(engine, child)
    # An expression that gives something else each time.
    config = {"name": "child", "with": {"n": "{{ task.id }}"}}
    first = engine.run(graph(other("run", "workflow", config=config), name="parent"))
    again = retried(engine, first["id"], "failed")
    assert again["error"]["code"] == ("child_changed" if has_acted else "child_failed")
    assert len(runs[token]) == (1 if has_acted else 2)


def test_no_retry_starts_beside_a_running_child(hand: Hand) -> None:
    """Nor while an effect of a child may still be under way."""
    register(hand, graph(step("pay"), name="child"))
    first = hand.start(graph(other("run", "workflow"), step("bad"), name="parent"))
    hand.settle({"run": ASKED})
    call_id = intend(hand, hand.claimed("pay"))
    with hand.database.connect("writer") as tx, tx.transaction():
        tx.execute(
            "UPDATE tool_calls SET expires_at = :then WHERE id = :id",
            then=hand.clock.now() + 3_600_000_000,
            id=call_id,
        )
    hand.fail("bad")
    child_id = child_of(hand, first)
    with pytest.raises(RefusedError, match=f"its child task {child_id} has not ended"):
        hand.operator.retry(first)
    hand.operator.cancel(child_id)
    with pytest.raises(RefusedError, match="may still be under way"):
        hand.operator.retry(first)
    hand.skip(3700)
    assert hand.operator.retry(first).is_changed


def test_a_locked_child_is_requested_again(hand: Hand) -> None:
    """A commit waits for no lock: if the earlier child is locked, the step tries again."""
    register(hand, graph(step("c"), name="child"))
    first = hand.start(parent("child"))
    hand.settle({"run": ASKED})
    child_id = child_of(hand, first)
    hand.operator.cancel(first)
    hand.running.clear()
    second = hand.operator.retry(first).task_id
    hand.commit()
    if hand.database.is_sqlite:
        # There is one writer: no other transaction can lock it.
        hand.settle({"run": ASKED}, second)
        assert hand.document(child_of(hand, second))["retry_of"] == child_id
        return
    with hand.database.connect("writer") as other_one, other_one.transaction():
        other_one.query("SELECT id FROM tasks WHERE id = :id FOR NO KEY UPDATE", id=child_id)
        hand.settle({"run": ASKED}, second)
        assert hand.document(second)["children"] == []
    assert hand.names(second) == ["run"]
    hand.settle({"run": ASKED}, second)
    assert hand.document(child_of(hand, second))["retry_of"] == child_id


def test_an_agents_child_belongs_to_its_tool_use(start: Start) -> None:
    """A tool whose child was interrupted continues it; the next use has a child of its own."""
    engine = start(models=MODELS)
    gate, slow = Gate(), Gate()
    child = graph(
        step("pay", "act", given={"token": gate.name}),
        step("wait", "gated", ["pay"], given={"gate": slow.name, "value": "{{ inputs.n }}"}),
        name="child",
        inputs={"n": {"type": "integer"}},
        output="{{ steps.wait.output }}",
    )
    register(engine, child)
    script = [uses("look", n=4), uses("look", n=4), "done"]
    task_id = engine.submit(graph(agent(*script), name="parent"))
    eventually(lambda: slow.entered == 1)
    engine.operator.cancel(task_id)
    eventually(lambda: engine.worker.running == 0)
    slow.open()
    again = retried(engine, task_id)
    assert again["status"] == "succeeded"
    assert len(runs[gate.name]) == 2
    origins = [engine.document(child)["retry_of"] for child in again["children"]]
    assert origins == [engine.document(task_id)["children"][0], None]


def test_a_fork_names_steps_whose_children_acted(engine: Engine) -> None:
    """A fork of the parent repeats the effects of a child, and its answer lists them."""
    gate = Gate()
    gate.open()
    register(engine, paying(gate))
    inner = other("run", "workflow", config={"name": "child"})
    register(engine, graph(inner, name="between", inputs={"n": {"default": 0}}))
    first = engine.run(parent("between"))
    answer = engine.operator.fork(first["id"], "run")
    assert answer.message.endswith("it will repeat the effects of: run")
    assert "effects" not in engine.operator.fork(first["id"], "after").message
    engine.wait(answer.task_id, "succeeded")
    assert len(runs[gate.name + "paid"]) == 2
