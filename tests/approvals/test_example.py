"""The example that asks, and the questions of the reference: they run as they are shown."""

from typing import Any

import pytest

from agent.workflows import loader
from agent.workflows.compile.compiler import check_text, compile_text
from agent.workflows.compile.inputs import check_inputs
from tests.support.approvals import everything, pending, question, say
from tests.support.documented import ROOT, documented_workflows
from tests.support.engine import Engine, eventually


def _submit_example(engine: Engine, **given: Any) -> str:
    loaded = loader.load(ROOT / "examples" / "expenses.yaml")
    inputs = check_inputs(loaded.graph, given)
    return engine.submit(loaded.graph, given=inputs, path=str(loaded.path))


@pytest.mark.parametrize("is_approved", [True, False])
def test_the_example_asks_twice(engine: Engine, is_approved: bool) -> None:
    """It pays what was approved, with the amount that the answer put in; or it tells why not."""
    task_id = _submit_example(engine, who="Bob")
    purpose = question(engine, task_id)
    assert purpose["message"] == "What did Bob spend 42.5 on?"
    say(engine, purpose, "answer", value="books")
    pay = question(engine, task_id, other_than=purpose["id"])
    assert pay["message"] == "Pay 42.5 back to Bob for books?"
    if is_approved:
        say(engine, pay, "approve", edits={"with.amount": 30})
        assert engine.wait(task_id, "succeeded")["output"] == "Bob got 30"
    else:
        say(engine, pay, "deny", comment="not ours")
        engine.wait(task_id, "failed")
        assert engine.steps(task_id)["tell"]["output"] == "approval denied by ada: not ours"


@pytest.mark.parametrize("name", ["approvals", "questions"])
def test_the_documented_questions_run(engine: Engine, name: str) -> None:
    """The blocks of the reference that wait for a person come to their end with one."""
    (text,) = [
        each.text for each in documented_workflows() if each.text.startswith(f"name: {name}\n")
    ]
    graph = compile_text(text, name)
    task_id = engine.submit(graph, given=check_inputs(graph, {}))
    values = {"title": "A title", "size": "small", "when": 3}
    while engine.status(task_id) == "running":
        for asked in pending(engine, task_id):
            if asked["kind"] == "input":
                say(engine, asked, "answer", value=values[asked["step"]])
            else:
                say(engine, asked, "approve")
        eventually(lambda: pending(engine, task_id) or engine.status(task_id) != "running")
    assert engine.status(task_id) == "succeeded"
    assert all(found["decision"]["by"] == "ada" for found in everything(engine, task_id))


@pytest.mark.parametrize(
    ("step", "problem"),
    [
        ("{approval: {message: x, editable: [a]}}", "nothing to edit"),
        ("{wait: 1s, approval: {message: x, editable: [lenght]}}", "has no key"),
        ("{approval: {message: x, on_expiry: renew}}", "renew needs expires"),
        ("{approval: {message: x, expires: 0s}}", "greater than zero"),
        ("{approval: {message: x, who: [everybody]}}", "is not valid"),
        ("{input: {message: x, choices: [a], schema: {}}}", "choices or schema"),
        ("{input: {choices: [a]}}", "'message' is missing"),
    ],
)
def test_problems_of_a_question_are_reported_before_it_runs(step: str, problem: str) -> None:
    """The file is checked as a whole; each problem names its key."""
    (found,) = check_text(f"name: x\nsteps:\n  a: {step}\n", "x.yaml")
    assert problem in found.message
