"""Retries and forks after a person's answer: it holds for the input that it was given under."""

import json
from typing import Any

import pytest

from agent.steps.types.outcome import Succeeded
from agent.workflows.graph import Fanout, Graph, Step
from tests.support.agent_steps import MODELS, uses
from tests.support.approvals import asks, everything, pending, question, say, token
from tests.support.child_tasks import child_of, register
from tests.support.engine import (
    NOW,
    Engine,
    Hand,
    Start,
    eventually,
    find_violations,
    graph,
    other,
    step,
)
from tests.support.step_functions import Gate, runs

INPUTS = {"amt": {"default": 1}, "note": {"type": "string", "default": ""}}
SHOWN, BLIND = "Pay {{ inputs.amt }}?", "OK to pay?"


def pay(counted: str, *after: str) -> Step:
    """Return a step that counts its runs, without a gate of its own."""
    return step("pay", "record", after, given={"token": counted, "value": "{{ inputs.amt }}"})


def approved(engine: Engine, workflow: Graph, **given: Any) -> str:
    """Run a task whose one question is answered with yes, and return its id."""
    task_id = engine.submit(workflow, given={"amt": 1, "note": "", **given})
    answer(engine, task_id)
    engine.wait(task_id, "succeeded")
    return task_id


def answer(engine: Engine, task_id: str) -> dict[str, Any]:
    """Give the answer that a task asks for, and return the question."""
    asked = question(engine, task_id)
    if asked["kind"] == "input":
        say(engine, asked, "answer", value="yes")
    else:
        say(engine, asked, "approve")
    return asked


def forked(engine: Engine, task_id: str, **edited: Any) -> str:
    """Fork a task from `pay`."""
    return engine.operator.fork(task_id, "pay", edited).task_id


@pytest.mark.parametrize("kind", ["approval", "input"])
@pytest.mark.parametrize("message", [SHOWN, BLIND], ids=["shown", "blind"])
def test_an_answer_does_not_hold_for_another_input(engine: Engine, kind: str, message: str) -> None:
    """A fork with another amount asks again, whether or not the question shows the amount."""
    counted = token()
    ask = asks("ask", kind, message=message)
    between = step("between", after=["ask"])
    task_id = approved(engine, graph(ask, between, pay(counted, "between"), inputs=INPUTS))
    fork = engine.operator.fork(task_id, "pay", {"amt": 1_000_000})
    assert fork.message.endswith("; answered under another input, asked again: ask")
    asked = question(engine, fork.task_id)
    assert engine.statuses(fork.task_id)["pay"] == "pending"
    assert len(runs[counted]) == 1
    assert asked["message"] == message.replace("{{ inputs.amt }}", "1000000")
    answer(engine, fork.task_id)
    assert engine.wait(fork.task_id, "succeeded")["output"] == {"pay": 1_000_000}
    assert len(runs[counted]) == 2


def test_an_answer_stays_good_under_the_same_input(engine: Engine) -> None:
    """A fork without edits, or with the very same values, keeps the answer; `true` is not 1."""
    counted = token()
    task_id = approved(engine, graph(asks("ask"), pay(counted, "ask"), inputs=INPUTS))
    for edited in ({}, {"amt": 1}):
        again = forked(engine, task_id, **edited)
        engine.wait(again, "succeeded")
        assert everything(engine, again) == []
    other_input = forked(engine, task_id, amt=True)
    answer(engine, other_input)
    engine.wait(other_input, "succeeded")


def test_a_retry_keeps_the_answer(engine: Engine) -> None:
    """The input of a retry is the same, so the question is not asked again."""
    gate = Gate()
    bad = step("pay", "fail_while_shut", ["ask"], given={"gate": gate.name, "value": 1})
    task_id = engine.submit(graph(asks("ask"), bad, inputs=INPUTS), given={"amt": 1, "note": ""})
    answer(engine, task_id)
    engine.wait(task_id, "failed")
    gate.open()
    again = engine.operator.retry(task_id).task_id
    engine.wait(again, "succeeded")
    assert everything(engine, again) == []


def test_an_answer_that_no_step_relies_on_is_kept_and_not_used_later(
    engine: Engine,
) -> None:
    """A kept answer for another input records the past; a second fork must not rely on it."""
    counted = token()
    aside = step("aside", "echo", given={"value": "{{ inputs.note }}"})
    workflow = graph(asks("ask"), pay(counted, "ask"), aside, inputs=INPUTS)
    task_id = approved(engine, workflow)
    edited = engine.operator.fork(task_id, "aside", {"amt": 1_000_000}).task_id
    assert engine.wait(edited, "succeeded")["output"] == {"pay": 1, "aside": ""}
    assert (everything(engine, edited), len(runs[counted])) == ([], 1)
    second = forked(engine, edited)
    question(engine, second)
    assert len(runs[counted]) == 1
    answer(engine, second)
    engine.wait(second, "succeeded")
    third = forked(engine, second)
    engine.wait(third, "succeeded")
    assert everything(engine, third) == [], "it was answered under this very input"


def test_an_answer_of_a_pruned_task_is_asked_again(engine: Engine) -> None:
    """The input of a task that was pruned is not known."""
    counted = token()
    task_id = approved(engine, graph(asks("ask"), pay(counted, "ask"), inputs=INPUTS))
    second = forked(engine, task_id)
    engine.wait(second, "succeeded")
    with engine.database.connect("writer") as tx, tx.transaction():
        tx.execute("DELETE FROM tasks WHERE id = :id", id=task_id)
    third = forked(engine, second)
    answer(engine, third)
    engine.wait(third, "succeeded")


def test_a_question_that_was_skipped_is_considered_again(engine: Engine) -> None:
    """A small amount needed no approval; the large one of the fork does."""
    counted = token()
    ask = asks("ask").model_copy(update={"condition": "inputs.amt > 100"})
    workflow = graph(ask, pay(counted, "ask"), inputs=INPUTS)
    first = engine.run(workflow, given={"amt": 1, "note": ""})
    assert first["status"] == "succeeded"
    again = forked(engine, first["id"], amt=1_000_000)
    question(engine, again)
    assert len(runs[counted]) == 1
    answer(engine, again)
    engine.wait(again, "succeeded")


def test_a_group_of_questions_is_asked_again(engine: Engine) -> None:
    """Items that were answered are not kept either, whether or not the group had ended."""
    counted = token()
    each = asks("each").model_copy(update={"fanout": Fanout(count=2)})
    workflow = graph(each, pay(counted, "each"), inputs=INPUTS)
    task_id = engine.submit(workflow, given={"amt": 1, "note": ""})
    answer(engine, task_id)
    early = forked(engine, task_id, amt=2)
    assert {found["step"] for found in _asked(engine, early, 2)} == {"each[0]", "each[1]"}
    answer(engine, task_id)
    engine.wait(task_id, "succeeded")
    late = forked(engine, task_id, amt=3)
    _asked(engine, late, 2)
    assert len(runs[counted]) == 1
    engine.operator.cancel(early)
    engine.operator.cancel(late)


def _asked(engine: Engine, task_id: str, count: int) -> list[dict[str, Any]]:
    question(engine, task_id)
    eventually(lambda: len(pending(engine, task_id)) == count)
    return pending(engine, task_id)


@pytest.mark.parametrize("is_deep", [False, True], ids=["child", "grandchild"])
def test_a_childs_answer_does_not_hold_for_another_input(engine: Engine, is_deep: bool) -> None:
    """A workflow that only asks is asked again, at every depth."""
    counted = token()
    register(engine, graph(asks("ask", message=BLIND), name="inner", inputs=INPUTS))
    if is_deep:
        deeper = other("run", "workflow", config={"name": "inner"})
        register(engine, graph(deeper, name="outer", inputs=INPUTS))
    config = {"name": "outer" if is_deep else "inner"}
    confirm = other("confirm", "workflow", config=config)
    task_id = engine.submit(
        graph(confirm, pay(counted, "confirm"), inputs=INPUTS), given={"amt": 1, "note": ""}
    )
    answer(engine, _asking(engine, task_id))
    engine.wait(task_id, "succeeded")
    kept = forked(engine, task_id)
    engine.wait(kept, "succeeded")
    again = forked(engine, task_id, amt=1_000_000)
    answer(engine, _asking(engine, again))
    engine.wait(again, "succeeded")
    assert len(runs[counted]) == 3


def _asking(engine: Engine, task_id: str) -> str:
    """Return the task at the bottom of a line of children, which asks."""
    child = child_of(engine, task_id)
    ((kind,),) = engine.rows('SELECT kind FROM steps WHERE task_id = :id AND "index" = 0', id=child)
    return _asking(engine, child) if kind == "workflow" else child


def test_children_that_ask_nothing_are_kept(engine: Engine) -> None:
    """Another input alone repeats no child; one that was skipped is considered again."""
    counted, below = token(), token()
    quiet = step("c", "record", given={"token": below})
    register(engine, graph(quiet, name="quiet", inputs=INPUTS))
    register(engine, graph(asks("ask"), name="inner", inputs=INPUTS))
    run = other("run", "workflow", config={"name": "quiet"})
    confirm = other(
        "confirm", "workflow", ["run"], config={"name": "inner"}, condition="inputs.amt > 100"
    )
    workflow = graph(run, confirm, pay(counted, "confirm"), inputs=INPUTS)
    first = engine.run(workflow, given={"amt": 1, "note": ""})
    again = forked(engine, first["id"], amt=1_000_000)
    answer(engine, _asking(engine, again))
    engine.wait(again, "succeeded")
    assert (len(runs[below]), len(runs[counted])) == (1, 2)


def test_a_reopened_group_counts_by_the_items_that_ran(engine: Engine) -> None:
    """Its children ran under the new input: the checker is content, and another fork keeps them."""
    counted, gate = token(), Gate()
    quiet = step("c", "fail_while_shut", given={"gate": gate.name, "value": 1})
    register(engine, graph(quiet, name="quiet", inputs=INPUTS))
    each = other("each", "workflow", config={"name": "quiet"}, fanout=Fanout(items=[1]))
    workflow = graph(each, pay(counted, "each"), inputs=INPUTS)
    first = engine.run(workflow, given={"amt": 1, "note": ""})
    assert first["status"] == "failed"
    gate.open()
    second = forked(engine, first["id"], amt=2)
    engine.wait(second, "succeeded")
    assert engine.types(second, "each")[0] == "step.kept"
    assert find_violations(engine.database) == []
    third = engine.operator.fork(second, "pay")
    assert "asked again" not in third.message
    assert engine.wait(third.task_id, "succeeded")["children"] == []
    assert len(runs[counted]) == 2


def agent(counted: str, *script: Any, **options: Any) -> Step:
    """Return an agent with one tool that asks before it acts."""
    tool = {"python": "tests.support.approval_functions:spend", **options.pop("tool", {})}
    goal = f"do it for {counted}\n```echo\n{json.dumps(script)}\n```"
    config = {"goal": goal, "model": "echo", "tools": {"spend": tool}}
    return Step(name="it", kind="agent", config=config, retry=NOW, **options)


def test_a_retried_agent_asks_only_for_what_it_has_not_done(start: Start) -> None:
    """A use on record is answered from there; another use is another question."""
    engine = start(models=MODELS)
    counted = token()
    script = [
        uses("spend", token=counted, amount=1),
        uses("spend", token=counted, amount=2),
        "done",
    ]
    task_id = engine.submit(graph(agent(counted, *script), name="spender"))
    first = answer(engine, task_id)
    assert first["request"]["arguments"]["amount"] == 1
    second = question(engine, task_id, first["id"])
    assert second["request"]["arguments"]["amount"] == 2
    engine.operator.cancel(task_id)
    again = engine.operator.retry(task_id).task_id
    asked = question(engine, again)
    assert asked["request"]["arguments"]["amount"] == 2
    assert runs[counted] == [1]
    say(engine, asked, "approve")
    engine.wait(again, "succeeded")
    assert runs[counted] == [1, 2]


def test_a_forked_agent_asks_for_everything_again(start: Start) -> None:
    """A fork is new work: nothing is on record, and nothing is approved."""
    engine = start(models=MODELS)
    counted = token()
    script = [uses("spend", token=counted, amount=1), "done"]
    task_id = engine.submit(graph(agent(counted, *script), name="spender"))
    answer(engine, task_id)
    engine.wait(task_id, "succeeded")
    again = engine.operator.fork(task_id, "it").task_id
    question(engine, again)
    assert runs[counted] == [1]
    answer(engine, again)
    engine.wait(again, "succeeded")
    assert runs[counted] == [1, 1]


def test_the_checker_finds_an_answer_used_for_another_input(hand: Hand) -> None:
    """The test changes the input in the database after the fork has kept the answer."""
    workflow = graph(asks("ask"), step("pay", after=["ask"]), inputs=INPUTS)
    task_id = hand.start(workflow, input={"amt": 1, "note": ""})
    hand.succeed("ask")
    hand.succeed("pay")
    fork = hand.operator.fork(task_id, "pay").task_id
    hand.commit()
    hand.succeed("pay")
    assert find_violations(hand.database) == []
    _set_input(hand, fork, '{"amt": 2, "note": ""}')
    (found,) = find_violations(hand.database)
    assert "step pay ran after ask, which was answered under another input" in found
    _set_input(hand, fork, '{"note": "", "amt": 1}')


def test_the_checker_finds_an_answer_kept_in_a_reopened_group(hand: Hand) -> None:
    """The group ended in the retry, but one of its answers was given before."""
    each = asks("each").model_copy(update={"fanout": Fanout(count=2)})
    workflow = graph(each, step("pay", after=["each"]), fail_fast=False, inputs=INPUTS)
    task_id = hand.start(workflow, input={"amt": 1, "note": ""})
    hand.settle({"each": Succeeded(items=[0, 1])})
    hand.succeed("each[0]")
    hand.fail("each[1]")
    retry = hand.operator.retry(task_id).task_id
    hand.commit()
    assert hand.names() == ["each[1]"]
    hand.succeed("each[1]")
    hand.succeed("pay")
    assert find_violations(hand.database) == []
    _set_input(hand, retry, '{"amt": 2, "note": ""}')
    (found,) = find_violations(hand.database)
    assert "step pay ran after each, which was answered under another input" in found
    _set_input(hand, retry, '{"amt": 1, "note": ""}')


def _set_input(hand: Hand, task_id: str, text: str) -> None:
    with hand.database.connect("writer") as tx, tx.transaction():
        tx.execute("UPDATE tasks SET input = :text WHERE id = :id", text=text, id=task_id)
