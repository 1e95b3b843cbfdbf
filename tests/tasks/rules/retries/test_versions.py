"""A retry or a fork on the newest version keeps what fits it, and refuses what does not."""

from typing import Any

import pytest

from agent.approvals.answering import answer as answer_approval
from agent.core.waits import ChildRequest, UnknownCall
from agent.steps.attempt import prepare
from agent.steps.types.outcome import Question, Succeeded, Waiting
from agent.store.engine import lineage
from agent.tasks.errors import NotFoundError, RefusedError
from agent.tasks.operator import newer_versions
from agent.tasks.state.graph_cache import GraphCache
from agent.workflows.graph import Fanout, Graph, Step
from tests.support.approvals import caller, resolve
from tests.support.child_tasks import register
from tests.support.engine import Hand, graph, other, step
from tests.support.interventions import intend


def _failed(hand: Hand, definition: Graph, *succeeded: str, failed: str, **options: Any) -> str:
    """Return a task in which some steps have succeeded and one has failed."""
    task_id = hand.start(definition, **options)
    for name in succeeded:
        hand.succeed(name)
    hand.fail(failed)
    return task_id


def _latest(hand: Hand, task_id: str, new: Graph) -> str:
    register(hand, new)
    answer = hand.operator.retry(task_id, is_latest=True)
    hand.commit()
    return answer.task_id


def _foretold(hand: Hand, task_id: str, from_step: str | None = None) -> str | None:
    """Return the refusal that a surface shows before anyone asks."""
    with hand.database.connect("reader") as connection, connection.snapshot():
        now = hand.clock.now()
        return newer_versions.refusal(connection, GraphCache(), task_id, now, from_step)


def test_what_succeeded_is_kept_by_name(hand: Hand) -> None:
    """Steps may have other indexes in the new version; what was not done runs with its new definition."""
    task_id = _failed(hand, graph(step("a"), step("b", after=["a"])), "a", failed="b")
    new = graph(step("z", after=["b"]), step("b", "echo", ["a"], given={"value": 2}), step("a"))
    register(hand, new)
    assert _foretold(hand, task_id) is None
    assert _foretold(hand, task_id, "a") is None
    assert _foretold(hand, task_id, "y") == "version 2 has no step 'y'"
    again = _latest(hand, task_id, new)
    assert hand.statuses(again) == {"z": "pending", "b": "running", "a": "succeeded"}
    assert hand.document(again)["version"] == 2
    assert hand.claimed("b", again).step.config["with"] == {"value": 2}
    hand.succeed("b", task_id=again)
    hand.succeed("z", task_id=again)
    assert hand.status(again) == "succeeded"


def test_without_latest_the_version_stays_and_the_newer_one_is_named(hand: Hand) -> None:
    """A retry keeps its definition unless a person says otherwise, and says that there is a newer one."""
    task_id = _failed(hand, graph(step("a")), failed="a")
    register(hand, graph(step("a", "echo")))
    answer = hand.operator.retry(task_id)
    assert "version 2 of tested is newer" in answer.message
    assert hand.document(answer.task_id)["version"] == 1


def test_a_retry_that_exists_keeps_its_version(hand: Hand) -> None:
    """The newest version cannot be chosen for it any more, and the answer says so."""
    task_id = _failed(hand, graph(step("a")), failed="a")
    again = hand.operator.retry(task_id).task_id
    assert hand.operator.retry(task_id, is_latest=True).message == f"already retried as {again}"
    register(hand, graph(step("a", "echo")))
    assert hand.operator.retry(task_id).message == f"already retried as {again}"
    answer = hand.operator.retry(task_id, is_latest=True)
    assert answer.task_id == again
    assert f"{again}, on version 1; version 2 of tested is newer" in answer.message


def test_the_newest_version_may_be_its_own(hand: Hand) -> None:
    """Nothing newer is recorded: the retry is an ordinary one."""
    task_id = _failed(hand, graph(step("a")), failed="a")
    answer = hand.operator.retry(task_id, is_latest=True)
    assert "version 1 of tested is the newest" in answer.message


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        (graph(step("a", "echo", given={"value": 1}), step("b", after=["a"])), "python.call"),
        (graph(step("b")), "'a': it succeeded, and that version has no such step"),
        (graph(other("a", "wait", config={"seconds": 1}), step("b", after=["a"])), "kind"),
        (graph(step("a", fanout=Fanout(count=2)), step("b", after=["a"])), "foreach"),
        (
            graph(step("new"), step("a", after=["new"]), step("b", after=["a"])),
            "now depends on new, which has to run",
        ),
        (graph(step("a", condition="false"), step("b", after=["a"])), "if: nothing"),
    ],
    ids=["config", "removed", "kind", "group", "dependency", "condition"],
)
def test_a_version_that_the_kept_steps_do_not_fit_is_refused(
    hand: Hand, changed: Graph, why: str
) -> None:
    """The refusal names the step and what differs; nothing is created."""
    task_id = _failed(hand, graph(step("a"), step("b", after=["a"])), "a", failed="b")
    register(hand, changed)
    before = hand.everything()
    with pytest.raises(RefusedError, match="do not fit version 2") as refusal:
        hand.operator.retry(task_id, is_latest=True)
    assert why in str(refusal.value)
    assert hand.everything() == before
    assert _foretold(hand, task_id) == str(refusal.value)
    assert _foretold(hand, task_id, "b") == str(refusal.value).replace("retry", "fork")


def test_a_fork_keeps_what_is_before_its_step(hand: Hand) -> None:
    """The step that the fork names runs with its new definition; those before it must fit."""
    task_id = _failed(hand, graph(step("a"), step("b", after=["a"])), "a", failed="b")
    register(hand, graph(step("a", "echo"), step("b", after=["a"]), step("c")))
    with pytest.raises(RefusedError, match="step 'a'"):
        hand.operator.fork(task_id, "b", is_latest=True)
    answer = hand.operator.fork(task_id, "a", is_latest=True)
    hand.commit()
    assert "version 2 of tested" in answer.message
    assert hand.statuses(answer.task_id)["a"] == "running"
    with pytest.raises(NotFoundError):
        hand.operator.fork(task_id, "c")


def test_a_fork_from_the_beginning_fits_every_version(hand: Hand) -> None:
    """Nothing is kept, so nothing has to fit; a retry of the same task is refused."""
    task_id = _failed(hand, graph(step("a"), step("b", after=["a"])), "a", failed="b")
    register(hand, graph(step("c")))
    with pytest.raises(RefusedError, match="step 'a'"):
        hand.operator.retry(task_id, is_latest=True)
    answer = hand.operator.fork(task_id, None, is_latest=True)
    hand.commit()
    assert hand.statuses(answer.task_id) == {"c": "running"}
    again = hand.operator.fork(task_id, None)
    hand.commit()
    assert hand.statuses(again.task_id) == {"a": "running", "b": "pending"}


def test_an_unknown_effect_is_found_by_its_step(hand: Hand) -> None:
    """A step that acted keeps its call under the new version, wherever it stands there."""
    task_id = hand.start(graph(step("a"), step("pay", "act", ["a"], given={"token": "t"})))
    hand.succeed("a")
    call = intend(hand, hand.claimed("pay"))
    hand.settle({"pay": Waiting(UnknownCall(call))})
    hand.operator.cancel(task_id)
    hand.skip(3600)
    new = graph(step("pay", "act", ["a"], given={"token": "t"}), step("a"))
    again = _latest(hand, task_id, new)
    (inherited,) = hand.claimed("pay", again).calls
    assert inherited.attempt == 0 and inherited.status == "unknown"


def test_an_unknown_effect_is_not_left_behind_by_a_step_that_only_reads(hand: Hand) -> None:
    """Such a step never comes to its recorded calls: a person says first what became of the effect."""
    sends = {"post": "https://example.org/pay"}
    task_id = hand.start(graph(other("pay", "http", config=sends)))
    call = intend(hand, hand.claimed("pay"))
    hand.settle({"pay": Waiting(UnknownCall(call))})
    hand.operator.cancel(task_id)
    hand.skip(3600)
    register(hand, graph(other("pay", "http", config={"get": "https://example.org/pay"})))
    with pytest.raises(RefusedError, match="'pay': whether its effect happened is unknown, and it"):
        hand.operator.retry(task_id, is_latest=True)
    resolve(hand.database, task_id, "pay", "done")
    assert hand.operator.retry(task_id, is_latest=True).is_changed


def test_a_step_that_acted_cannot_be_renamed(hand: Hand) -> None:
    """Under another name its effect would happen twice: the retry is refused."""
    task_id = hand.start(graph(step("pay", "act", given={"token": "t"})))
    call = intend(hand, hand.claimed("pay"))
    hand.settle({"pay": Waiting(UnknownCall(call))})
    hand.operator.cancel(task_id)
    hand.skip(3600)
    register(hand, graph(step("transfer", "act", given={"token": "t"})))
    with pytest.raises(
        RefusedError, match="'pay': it has acted, and that version has no such step"
    ):
        hand.operator.retry(task_id, is_latest=True)
    register(hand, graph(other("pay", "shell", config={"argv": ["true"]})))
    with pytest.raises(RefusedError, match="has acted as python, and is now of kind shell"):
        hand.operator.retry(task_id, is_latest=True)


def _asking(message: str, *more: Step) -> Graph:
    ask = other("ask", "approval", ["a"], config={"message": message})
    return graph(step("a"), ask, step("go", after=["ask"]), *more)


def _answered(hand: Hand, definition: Graph) -> str:
    """Return a task whose question was approved, and whose next step failed."""
    task_id = hand.start(definition)
    hand.succeed("a")
    claimed = hand.claimed("ask")
    rendered = prepare.rendered_config(claimed, prepare.prepare_step(claimed.step))
    request = {"kind": "approval", "message": rendered["message"]}
    hand.settle({"ask": Waiting(Question("approval", rendered["message"], request))})
    ((approval_id,),) = hand.rows("SELECT id FROM approvals WHERE task_id = :id", id=task_id)
    answer_approval(hand.database, approval_id, "approve", principal=caller())
    hand.commit()
    hand.succeed("ask")
    hand.fail("go")
    return task_id


def test_a_question_that_reads_the_same_is_not_asked_again(hand: Hand) -> None:
    """The template may be another one: what counts is the text that the person saw."""
    task_id = _answered(hand, _asking("May {{ steps.a.output }} go?"))
    again = _latest(hand, task_id, _asking("May {{ steps['a'].output }} go?", step("more")))
    assert hand.statuses(again)["ask"] == "succeeded"
    assert hand.statuses(again)["go"] == "running"


def test_a_question_that_reads_differently_is_asked_again(hand: Hand) -> None:
    """An answer holds for exactly what was shown; what follows runs after the new answer."""
    task_id = _answered(hand, _asking("May {{ steps.a.output }} go?"))
    register(hand, _asking("May {{ steps.a.output }} really go?"))
    answer = hand.operator.retry(task_id, is_latest=True)
    hand.commit()
    assert "asked again: ask" in answer.message
    assert hand.statuses(answer.task_id) == {"a": "succeeded", "ask": "running", "go": "pending"}


def test_another_input_of_the_new_version_asks_again(hand: Hand) -> None:
    """A default that the new version adds is another input: answers do not cover it."""
    task_id = _answered(hand, _asking("May it?"))
    new = _asking("May it?").model_copy(update={"inputs": {"n": {"type": "number", "default": 3}}})
    register(hand, new)
    answer = hand.operator.retry(task_id, is_latest=True)
    hand.commit()
    assert hand.document(answer.task_id)["input"] == {"n": 3}
    assert hand.statuses(answer.task_id)["ask"] == "running"


def test_an_input_that_the_new_version_needs_is_refused(hand: Hand) -> None:
    """A required input has no value to go on with."""
    task_id = _failed(hand, graph(step("a")), failed="a")
    register(hand, graph(step("a"), step("b"), inputs={"n": {"type": "number"}}))
    with pytest.raises(RefusedError, match="the input does not fit version 2"):
        hand.operator.retry(task_id, is_latest=True)


def test_items_that_succeeded_are_kept(hand: Hand) -> None:
    """A group goes on with the items that it has, at its new index."""
    group = step("g", "echo", given={"value": "{{ item }}"}, fanout=Fanout(items=[1, 2]))
    task_id = hand.start(graph(group, fail_fast=False))
    hand.settle({"g": Succeeded(items=[1, 2])})
    hand.succeed("g[0]")
    hand.fail("g[1]")
    assert hand.status(task_id) == "failed"
    again = _latest(hand, task_id, graph(step("first"), group, fail_fast=False))
    assert hand.statuses(again)["g[0]"] == "succeeded"
    assert hand.claimed("g[1]", again).item == 2


def test_children_are_found_by_the_name_of_their_step(hand: Hand) -> None:
    """The child of a step in an earlier version is continued, not repeated."""
    child = graph(step("c"), name="child")
    register(hand, child)
    call = other("call", "workflow", config={"name": "child"})
    task_id = hand.start(graph(call))
    hand.settle({"call": Waiting(ChildRequest("child", {}))})
    ((child_id,),) = hand.rows("SELECT id FROM tasks WHERE parent_task_id = :id", id=task_id)
    hand.fail("c", task_id=child_id)
    hand.operator.cancel(task_id)
    again = _latest(hand, task_id, graph(step("first"), call))
    with hand.database.connect("reader") as connection:
        found = lineage.earlier_children(connection, again, "call", 1, -1)
    assert [row[0] for row in found] == [child_id]


def test_a_removed_workflow_has_no_newest_version(hand: Hand) -> None:
    """The task can still go on with its own version."""
    task_id = _failed(hand, graph(step("a")), failed="a")
    with hand.database.connect("writer") as connection, connection.transaction():
        connection.execute("UPDATE workflows SET removed_at = 1")
    with pytest.raises(RefusedError, match="was removed"):
        hand.operator.retry(task_id, is_latest=True)
    assert hand.operator.retry(task_id).is_changed
