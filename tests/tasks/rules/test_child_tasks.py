"""Child tasks: results reach the parent, pause and cancel reach the child, depth is limited."""

from typing import Any

import pytest

from agent.config.execution import EngineSettings
from agent.core.waits import ChildRequest, UnknownCall
from agent.steps.types.outcome import Succeeded, Waiting
from agent.store.db.database import StoreError
from agent.store.db.dialect import Fault
from agent.tasks.commit.batch import Batch
from agent.tasks.operator.operator import Operator
from agent.tasks.read_models import person_waits, task_list
from agent.tasks.rescue import peer_takeover
from agent.tasks.rules.child_tasks import ChildEnd
from agent.workflows.graph import Fanout, Graph
from tests.support.approvals import resolve
from tests.support.child_tasks import child_of, gated_child, parent, register
from tests.support.engine import Engine, Hand, Reader, eventually, graph, other, step
from tests.support.interventions import intend
from tests.support.step_functions import Gate


def listed_tasks(reader: Reader) -> list[dict[str, Any]]:
    """Return all tasks as `agent tasks` lists them."""
    with reader.database.connect("reader") as connection:
        return task_list.list_tasks(connection)


def test_a_childs_output_becomes_its_steps_output(engine: Engine) -> None:
    """The parent's step waits without a slot, passes the input, and takes the child's output."""
    known = graph(
        step("double", "echo", given={"value": "{{ inputs.n * 2 }}"}),
        name="child",
        inputs={"n": {"type": "integer"}},
        output="{{ steps.double.output }}",
    )
    register(engine, known)
    done = engine.run(parent("child"))
    assert (done["status"], done["output"]) == ("succeeded", {"after": 10})
    child = engine.document(done["children"][0])
    assert (child["parent"], child["status"]) == (done["id"], "succeeded")


def test_a_failed_child_fails_its_step(engine: Engine) -> None:
    """The parent's error names the child and contains its reason."""
    register(engine, graph(step("c", "fail"), name="child", inputs={"n": {"default": 0}}))
    done = engine.run(parent("child"))
    assert done["status"] == "failed"
    assert done["error"]["code"] == "child_failed"
    assert done["children"][0] in done["error"]["message"]
    assert "it does not work" in done["error"]["message"]


def test_a_child_whose_output_fails_to_render_fails_its_step(engine: Engine) -> None:
    """The child has succeeded and reports the problem; the parent gets no substitute."""
    known = graph(
        step("c"), name="child", inputs={"n": {"default": 0}}, output="{{ steps.c.output.nothing }}"
    )
    register(engine, known)
    done = engine.run(parent("child"))
    assert (done["status"], done["error"]["code"]) == ("failed", "child_failed")
    assert "steps.c.output.nothing is missing" in done["error"]["message"]
    child = engine.document(done["children"][0])
    assert (child["status"], child["output"]) == ("succeeded", None)
    assert child["error"]["code"] == "bad_output"


def test_a_parent_lists_the_questions_of_its_children(engine: Engine) -> None:
    """The root shows what a person must do, however deep and wide the tree is."""
    asks = graph(
        other("quick", "wait", config={"duration": 0}, condition="inputs.n == 1"),
        other("go", "wait", ["quick"], config={"signal": "go"}, condition="inputs.n == 2"),
        name="asks",
        inputs={"n": {"default": 0}},
    )
    register(engine, asks)
    each = other(
        "each", "workflow", config={"name": "asks", "with": {"n": "{{ item }}"}},
        fanout=Fanout(items=[1, 2]),
    )  # fmt: skip
    register(engine, graph(each, name="middle", inputs={"n": {"default": 0}}))
    task_id = engine.submit(parent("middle"))
    (ask,) = eventually(lambda: person_waits.waits_on_person(engine.document(task_id)))
    assert (ask["step"], ask["signal"]) == ("go", "go")
    assert engine.document(ask["task"])["workflow"] == "asks"
    listed = {task["id"]: task["waits"] for task in listed_tasks(engine)}
    assert (listed[ask["task"]], listed[task_id]) == (1, 0)
    engine.operator.signal(ask["task"], "go", None)
    engine.wait(task_id, "succeeded")
    assert person_waits.waits_on_person(engine.document(task_id)) == []


def test_a_running_child_asks_no_question(engine: Engine) -> None:
    """The parent asks for a person only if the child was paused by itself."""
    gate = gated_child(engine)
    task_id = engine.submit(parent("child"))
    eventually(lambda: gate.entered == 1)
    child_id = child_of(engine, task_id)
    assert person_waits.waits_on_person(engine.document(task_id)) == []
    engine.operator.pause(child_id)
    assert person_waits.waits_on_person(engine.document(task_id)) == []
    gate.open()
    (ask,) = eventually(lambda: person_waits.waits_on_person(engine.document(task_id)))
    assert ask == {"task": child_id, "paused": ""}
    with engine.database.connect("writer") as tx, tx.transaction():
        tx.execute("UPDATE tasks SET pause_command = 'budget x' WHERE id = :id", id=child_id)
    (ask,) = person_waits.waits_on_person(engine.document(task_id))
    assert ask["command"] == "budget x", "what a budget paused is resumed by raising it"
    engine.operator.resume(child_id)
    engine.wait(task_id, "succeeded")


def test_an_unknown_workflow_and_a_bad_input_fail_the_step(engine: Engine) -> None:
    """Nothing is created, and the error says what is wrong."""
    done = engine.run(parent("nowhere"))
    assert (done["status"], done["error"]["code"]) == ("failed", "no_such_workflow")
    register(engine, graph(step("c"), name="strict", inputs={"m": {"type": "string"}}))
    done = engine.run(parent("strict"))
    assert (done["status"], done["error"]["code"]) == ("failed", "bad_input")
    assert done["children"] == []


def test_depth_is_bounded(engine: Engine) -> None:
    """A workflow that runs itself ends at the limit, and the failure reaches the root."""
    loop = graph(other("again", "workflow", config={"name": "loop"}), name="loop")
    done = engine.run(loop)
    depth = EngineSettings().task_depth
    assert done["status"] == "failed"
    assert engine.rows("SELECT max(depth), count(*) FROM tasks") == [(depth, depth + 1)]
    codes = [error for (error,) in engine.rows("SELECT error FROM tasks ORDER BY depth DESC")]
    assert "too_deep" in codes[0] and all("child_failed" in code for code in codes[1:])


def test_cancelling_a_parent_cancels_its_child(engine: Engine) -> None:
    """The child's attempts are stopped too."""
    gate = gated_child(engine)
    task_id = engine.submit(parent("child"))
    eventually(lambda: gate.entered == 1)
    child_id = child_of(engine, task_id)
    engine.operator.cancel(task_id)
    assert (engine.status(task_id), engine.status(child_id)) == ("canceled", "canceled")
    eventually(lambda: engine.worker.running == 0)


def test_pause_and_resume_of_a_parent_reach_its_child(engine: Engine) -> None:
    """A paused parent's child is paused; both resume together."""
    gate = gated_child(engine)
    task_id = engine.submit(parent("child"))
    eventually(lambda: gate.entered == 1)
    child_id = child_of(engine, task_id)
    engine.operator.pause(task_id)
    assert (engine.status(task_id), engine.status(child_id)) == ("paused", "paused")
    gate.open()
    engine.wait_step(child_id, "c", "succeeded")
    assert engine.status(child_id) == "paused"
    engine.operator.resume(task_id)
    assert engine.wait(task_id, "succeeded")["output"] == {"after": {"c": 1}}


def test_a_cancelled_child_fails_its_parent_at_once(engine: Engine) -> None:
    """A person cancels only the child: the parent is notified without polling."""
    gate = gated_child(engine)
    task_id = engine.submit(parent("child"))
    eventually(lambda: gate.entered == 1)
    engine.operator.cancel(child_of(engine, task_id))
    done = engine.wait(task_id, "failed")
    assert "canceled" in done["error"]["message"]
    types = engine.types(task_id)
    assert types.count("step.woken") == 1


def test_a_failing_parent_cancels_its_child(engine: Engine) -> None:
    """No step waits for the child any more."""
    gate, bad = gated_child(engine), Gate()
    failing = graph(
        other("run", "workflow", config={"name": "child"}),
        step("bad", "gated_failure", given={"gate": bad.name}),
        name="parent",
    )
    task_id = engine.submit(failing)
    eventually(lambda: gate.entered == 1)
    bad.open()
    engine.wait(task_id, "failed")
    engine.wait(child_of(engine, task_id), "canceled")


def test_cancelling_a_child_is_retried_after_an_outage(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No other process knows of the cancellation, so the worker retries until it is done."""
    monkeypatch.setattr(peer_takeover, "_FIRST_PAUSE_SECONDS", 0.01)
    cancel, failures = Operator.cancel, [StoreError(Fault.LOST, "away")] * 3

    def fail_first(self: Operator, task_id: str, reason: str | None = None) -> Any:
        if failures:
            raise failures.pop()
        return cancel(self, task_id, reason)

    monkeypatch.setattr(Operator, "cancel", fail_first)
    gate, bad = gated_child(engine), Gate()
    failing = graph(
        other("run", "workflow", config={"name": "child"}),
        step("bad", "gated_failure", given={"gate": bad.name}),
        name="parent",
    )
    task_id = engine.submit(failing)
    eventually(lambda: gate.entered == 1)
    bad.open()
    engine.wait(child_of(engine, task_id), "canceled")
    assert failures == []


def test_a_childs_end_changes_nothing_in_a_cancelled_parent(hand: Hand) -> None:
    """The notification may arrive after the parent was cancelled."""
    register(hand, graph(step("c"), name="child"))
    task_id = hand.start(parent("child"))
    hand.settle({"run": Waiting(ChildRequest("child", {}))})
    child_id = child_of(hand, task_id)
    hand.succeed("c")
    assert hand.status(child_id) == "succeeded"
    hand.operator.cancel(task_id)
    ((step_id,),) = hand.rows(
        "SELECT id FROM steps WHERE task_id = :id AND name = 'run'", id=task_id
    )
    hand.commit(Batch(child_ends=[ChildEnd(child_id, "succeeded", task_id, step_id)]))
    assert hand.statuses(task_id)["run"] == "waiting"


def test_a_waiting_step_polls_for_a_childs_end(hand: Hand) -> None:
    """If the notification is lost, the step still learns of the end."""
    register(hand, graph(step("c"), name="child"))
    task_id = hand.start(parent("child"))
    hand.settle({"run": Waiting(ChildRequest("child", {}))})
    hand.succeed("c")
    hand.commit()
    assert hand.names() == []
    hand.skip(60)
    hand.commit()
    claimed = hand.claimed("run")
    assert claimed.waited is not None
    assert claimed.waited.result["status"] == "succeeded"
    assert claimed.waited.result["output"] == {"c": "c"}
    hand.settle({"run": Succeeded(1)})
    hand.succeed("after")
    assert hand.status(task_id) == "succeeded"


def test_a_child_requested_during_a_pause_starts_paused(hand: Hand) -> None:
    """Nothing new starts in a paused task, the steps of its children included."""
    register(hand, graph(step("c"), name="child"))
    task_id = hand.start(parent("child"))
    hand.operator.pause(task_id)
    hand.settle({"run": Waiting(ChildRequest("child", {}))})
    assert hand.names() == []
    assert hand.status(child_of(hand, task_id)) == "paused"
    hand.operator.resume(task_id)
    hand.commit()
    assert hand.names() == ["c"]


def test_a_child_whose_parent_was_pruned_can_be_cancelled(hand: Hand) -> None:
    """There is no parent to notify, and the command succeeds."""
    register(hand, graph(step("c"), name="child"))
    task_id = hand.start(parent("child"))
    hand.settle({"run": Waiting(ChildRequest("child", {}))})
    child_id = child_of(hand, task_id)
    with hand.database.connect("writer") as tx, tx.transaction():
        tx.execute("DELETE FROM tasks WHERE id = :id", id=task_id)
    assert hand.operator.cancel(child_id).is_changed
    assert hand.status(child_id) == "canceled"


def test_a_command_that_fails_a_task_cancels_its_children(hand: Hand) -> None:
    """A person's command may end a task too; its children are then cancelled."""
    register(hand, graph(step("c"), name="child"))
    failing = graph(other("run", "workflow", config={"name": "child"}), step("pay"), name="parent")
    task_id = hand.start(failing)
    call_id = intend(hand, hand.claimed("pay"))
    asked = Waiting(ChildRequest("child", {}))
    hand.settle({"run": asked, "pay": Waiting(UnknownCall(call_id))})
    resolve(hand.database, task_id, "pay", "fail")
    assert hand.status(task_id) == "failed"
    assert hand.status(child_of(hand, task_id)) == "canceled"


def test_the_end_of_an_earlier_child_does_not_wake_a_wait_for_the_next(hand: Hand) -> None:
    """A notification may arrive twice, or late: the step keeps waiting for the other child."""
    register(hand, graph(step("c"), name="child"))
    task_id = hand.start(parent("child"))
    asked = Waiting(ChildRequest("child", {}))
    hand.settle({"run": asked})
    first = child_of(hand, task_id)
    ((step_id,),) = hand.rows("SELECT parent_step_id FROM tasks WHERE id = :id", id=first)
    hand.succeed("c")
    end = Batch(child_ends=[ChildEnd(first, "succeeded", task_id, step_id)])
    hand.commit(end)
    hand.settle({"run": asked})
    hand.commit(end)
    assert hand.names() == ["c"]
    assert hand.statuses(task_id)["run"] == "waiting"


def timed_parent(**options: Any) -> Graph:
    """Return a workflow with a child and a short time limit."""
    return graph(
        other("run", "workflow", config={"name": "child"}),
        name="parent",
        timeout_seconds=5,
        **options,
    )


def test_a_command_that_detects_a_passed_deadline_cancels_the_children(hand: Hand) -> None:
    """Any transaction may be the first to check; here it is a signal that no step waits for."""
    register(hand, graph(step("c"), name="child"))
    task_id = hand.start(timed_parent())
    hand.settle({"run": Waiting(ChildRequest("child", {}))})
    hand.skip(6)
    hand.operator.signal(task_id, "hello")
    assert hand.status(task_id) == "failed"
    assert hand.status(child_of(hand, task_id)) == "canceled"


def test_a_command_that_detects_used_up_time_pauses_the_children(hand: Hand) -> None:
    """A time budget pauses the whole family, whichever transaction detects it."""
    register(hand, graph(step("c"), name="child"))
    budget = {"time_seconds": 5, "on_exhausted": "pause"}
    task_id = hand.start(timed_parent(budget=budget))
    hand.settle({"run": Waiting(ChildRequest("child", {}))})
    hand.skip(6)
    hand.operator.signal(task_id, "hello")
    assert (hand.status(task_id), hand.status(child_of(hand, task_id))) == ("paused", "paused")


def test_a_late_notification_of_a_childs_end_applies_the_parents_deadline(hand: Hand) -> None:
    """The parent's deadline then reaches the rest of its family, as with any other transaction."""
    register(hand, graph(step("c"), name="child"))
    both = graph(
        other("one", "workflow", config={"name": "child"}),
        other("two", "workflow", config={"name": "child"}),
        name="parent",
        timeout_seconds=5,
    )
    task_id = hand.start(both)
    asked = Waiting(ChildRequest("child", {}))
    hand.settle({"one": asked, "two": asked})
    first, second = (row[0] for row in hand.rows("SELECT id FROM tasks WHERE depth = 1"))
    hand.skip(6)
    hand.operator.cancel(first)
    assert hand.status(task_id) == "failed"
    assert hand.status(second) == "canceled"
