"""The gate: a step runs exactly what was approved, and nothing else."""

import pytest

from agent.approvals.answering import InvalidAnswerError
from agent.core.ids import request_hash
from agent.tasks.read_models import step_attempts
from agent.workflows.compile.compiler import compile_text
from agent.workflows.diagnostics import WorkflowError
from agent.workflows.graph import Step
from tests.support.approvals import MESSAGE, asked, everything, gated, pending, question, say, token
from tests.support.engine import NOW, Engine, eventually, graph, step
from tests.support.step_functions import runs


def test_a_gated_step_waits_for_a_yes_and_then_runs_once(engine: Engine) -> None:
    """Before the answer nothing runs and nothing is held; with it the step does what was shown."""
    counted = token()
    task_id, approval = asked(engine, gated("pay", counted))
    found = engine.wait_step(task_id, "pay", "waiting")
    assert runs[counted] == []
    eventually(lambda: engine.worker.running == 0, "a waiting step holds no slot")
    assert found["waiting_on"] == {
        "approval": approval["id"],
        "kind": "approval",
        "message": MESSAGE,
        "expires_at": None,
    }
    assert engine.document(task_id)["waiting_on"] == [{"step": "pay", **found["waiting_on"]}]
    config = {
        "call": "tests.support.step_functions:record",
        "with": {"token": counted, "value": 12},
    }
    assert approval["request"] == {"kind": "python", "config": config}
    assert approval["request_hash"] == request_hash(approval["request"])
    ((checkpoint,),) = engine.rows("SELECT checkpoint FROM steps WHERE task_id = :id", id=task_id)
    assert approval["id"] in checkpoint and "approval_id" in checkpoint
    assert say(engine, approval, "approve", comment="fine").status == "approved"
    assert engine.wait(task_id, "succeeded")["output"] == {"pay": 12}
    assert runs[counted] == [("pay", None, 1)], "waiting costs no attempt"
    (decided,) = everything(engine, task_id)
    assert decided["decision"]["by"] == "ada"
    assert decided["decision"]["comment"] == "fine"
    types = [kind for kind in engine.types(task_id, "pay") if kind != "step.released"]
    assert types == [
        "step.claimed",
        "step.waiting",
        "approval.requested",
        "approval.decided",
        "step.woken",
        "step.claimed",
        "step.succeeded",
    ]


def test_a_no_fails_the_step_with_its_reason(engine: Engine) -> None:
    """A denial is a failure of its own class; what depends on it is skipped, clean-up sees why."""
    counted = token()
    why = step(
        "why",
        "echo",
        ["pay"],
        run_on="failure",
        given={"value": "{{ steps.pay.error.message }}"},
    )
    task_id, approval = asked(engine, gated("pay", counted), gated("next", counted, ("pay",)), why)
    say(engine, approval, "deny", comment="too much")
    done = engine.wait(task_id, "failed")
    assert done["error"]["class"] == "denied"
    assert done["error"]["message"] == "approval denied by ada: too much"
    assert engine.steps(task_id)["why"]["output"] == "approval denied by ada: too much"
    assert engine.statuses(task_id)["next"] == "skipped"
    assert runs[counted] == []
    assert len(everything(engine, task_id)) == 1


def test_a_changed_request_is_asked_again(engine: Engine) -> None:
    """An approval is good for what was shown; another request is another question.

    What the step itself had saved is there after the second question as before.
    """
    counted = token()
    config = {
        "call": "tests.support.approval_functions:resumable",
        "with": {"token": counted, "attempt": "{{ task.attempt }}"},
    }
    pay = Step(name="pay", kind="python", config=config, approval={"message": "ok?"}, retry=NOW)
    task_id, first = asked(engine, pay)
    say(engine, first, "approve")
    second = question(engine, task_id, other_than=first["id"])
    assert second["request"]["config"]["with"]["attempt"] == 2
    assert second["request_hash"] != first["request_hash"]
    assert runs[counted] == [(1, None)]
    say(engine, second, "approve")
    assert engine.wait(task_id, "succeeded")["output"] == {"pay": {"done": 3}}
    assert runs[counted] == [(1, None), (2, {"done": 3})]


def test_a_retry_of_the_same_request_is_not_asked_again(engine: Engine) -> None:
    """An approval covers the attempts of its step for as long as the request is the same."""
    pay = step("pay", "fail_before", given={"attempt": 3}, approval={"message": "ok?"})
    task_id, approval = asked(engine, pay)
    say(engine, approval, "approve")
    assert engine.wait(task_id, "succeeded")["output"] == {"pay": 3}
    assert len(everything(engine, task_id)) == 1


def test_an_answer_may_change_editable_keys(engine: Engine) -> None:
    """The approval is then for the edited request."""
    counted = token()
    task_id, approval = asked(engine, gated("pay", counted, editable=["with.value"]))
    assert approval["editable"] == ["with.value"]
    for edits, problem in (
        ({"call": "os:abort"}, "'call' may not be edited: with.value may"),
        ({"with": {}}, "'with' may not be edited"),
        ({"with.valuer": 1}, "'with.valuer' may not be edited"),
        ({"with.value.deep": 1}, "no keys of its own"),
    ):
        with pytest.raises(InvalidAnswerError, match=problem):
            say(engine, approval, "approve", edits=edits)
    assert len(pending(engine, task_id)) == 1
    say(engine, approval, "approve", edits={"with.value": 7})
    assert engine.wait(task_id, "succeeded")["output"] == {"pay": 7}
    (decided,) = everything(engine, task_id)
    assert decided["decision"]["edits"] == {"with.value": 7}
    ((approved_hash,),) = engine.rows("SELECT approved_hash FROM approvals")
    shown = decided["request"]
    shown["config"]["with"]["value"] = 7
    assert approved_hash == request_hash(shown) != decided["request_hash"]


def test_edits_are_checked_by_the_kind_and_never_reach_secrets(engine: Engine) -> None:
    """An edit that the kind's keys do not allow is refused, and so is one of a secret."""
    pay = Step(
        name="pay",
        kind="shell",
        config={"argv": ["echo", "12"], "env": {"KEY": "env:HOME", "CITY": "Rome"}},
        approval={"message": "ok?", "editable": ["argv", "env"]},
    )
    task_id, approval = asked(engine, pay)
    for edits, problem in (
        ({"argv": []}, "argv"),
        ({"argv": "rm"}, "argv"),
        ({"env.KEY": "env:OTHER"}, "holds a secret"),
        ({"env": {}}, "holds a secret"),
    ):
        with pytest.raises(InvalidAnswerError, match=problem):
            say(engine, approval, "approve", edits=edits)
    say(engine, approval, "approve", edits={"argv": ["echo", "7"], "env.CITY": "Oslo"})
    assert engine.wait(task_id, "succeeded")["output"]["pay"]["stdout"] == "7\n"


def test_every_item_of_a_group_asks_for_itself(engine: Engine) -> None:
    """A gate before a group is one before each of its items, with what that item would do."""
    counted = token()
    pay = step(
        "pay",
        "record",
        given={"token": counted, "value": "{{ item }}"},
        approval={"message": "Pay {{ item }}?"},
        fanout={"items": [5, 6, 7]},
    )
    task_id = engine.submit(graph(pay, fail_fast=False))
    eventually(lambda: len(pending(engine, task_id)) == 3)
    for approval in pending(engine, task_id):
        assert approval["step"] == f"pay[{approval['request']['config']['with']['value'] - 5}]"
        is_small = approval["message"] != "Pay 7?"
        say(engine, approval, "approve" if is_small else "deny")
    engine.wait(task_id, "failed")
    found = engine.statuses(task_id)
    assert [found[f"pay[{n}]"] for n in range(3)] == ["succeeded", "succeeded", "failed"]
    assert len(runs[counted]) == 2


@pytest.mark.parametrize(
    ("message", "code"), [("{{ inputs.text }}", "bad_config"), ("{{ '\\0' }}", "not_plain_json")]
)
def test_a_question_that_cannot_be_put_fails_its_step(
    engine: Engine, message: str, code: str
) -> None:
    """An empty message, or one that cannot be stored, fails the step; no question is asked."""
    pay = step("pay", approval={"message": message})
    done = engine.run(graph(pay), given={"text": ""})
    assert done["error"]["code"] == code, done["error"]
    assert everything(engine) == []


def test_a_request_that_differs_from_the_approval_does_not_run(engine: Engine) -> None:
    """The approval is compared with the request just before it runs, whatever is recorded."""
    counted = token()
    task_id, approval = asked(engine, gated("pay", counted, editable=["with.value"]))
    engine.operator.pause(task_id)
    say(engine, approval, "approve", edits={"with.value": 5})
    with engine.database.connect("writer") as tx, tx.transaction():
        tx.execute("UPDATE approvals SET edits = :edits", edits='{"with.value": 5000}')
    engine.operator.resume(task_id)
    done = engine.wait(task_id, "failed")
    assert done["error"]["code"] == "not_as_approved"
    assert runs[counted] == []


def test_a_gate_with_a_condition_asks_only_where_it_is_true(engine: Engine) -> None:
    """The condition is computed for what would be done; where it is false, the attempt says so."""
    when = "request.config.with.value > 50"
    small, large = token(), token()
    task_id = engine.submit(graph(gated("pay", small, when=when)))
    assert engine.wait(task_id, "succeeded")["output"] == {"pay": 12}
    assert everything(engine, task_id) == []
    with engine.database.connect("reader") as connection:
        (attempt,) = step_attempts.step_document(connection, task_id, "pay")["attempts"]
    assert attempt["open_gate"] == when
    other_id, approval = asked(engine, gated("pay", large, when=when, value=60))
    assert runs[large] == []
    say(engine, approval, "approve")
    assert engine.wait(other_id, "succeeded")["output"] == {"pay": 60}
    with engine.database.connect("reader") as connection:
        (attempt,) = step_attempts.step_document(connection, other_id, "pay")["attempts"]
    assert attempt["open_gate"] is None


def test_what_was_approved_with_edits_keeps_them_when_the_condition_is_false(
    engine: Engine,
) -> None:
    """A later attempt for which nothing would be asked runs what the person approved, not the original."""
    approval = {"message": MESSAGE, "when": "task.attempt == 1", "editable": ["with.attempt"]}
    pay = step("pay", "fail_before", given={"attempt": 9}, approval=approval, retry=NOW)
    task_id, asked_for = asked(engine, pay)
    say(engine, asked_for, "approve", edits={"with.attempt": 2})
    assert engine.wait(task_id, "succeeded")["output"] == {"pay": 2}


@pytest.mark.parametrize(
    "when",
    [
        "request.config.with.nothing > 50",
        # For Jinja these are 0, and below the limit.
        "'9.999,00' | float > 50",
        "'9.999,00' | int > 50",
        "{{ 'nan' | float > 50 }}",
    ],
    ids=["missing", "float", "int", "nan"],
)
def test_a_condition_that_cannot_be_computed_fails_before_the_step_acts(
    engine: Engine, when: str
) -> None:
    """Neither is the person asked, nor does the step act."""
    counted = token()
    done = engine.run(graph(gated("pay", counted, when=when)))
    assert done["error"]["code"] == "bad_condition" and "approval.when" in done["error"]["message"]
    assert runs[counted] == []


@pytest.mark.parametrize(
    ("approval", "problem"),
    [
        ('{approval: {message: "Really?", when: "inputs.x > 1"}}', "the step's `if`"),
        ('{approval: {message: Sure?, when: "inputs.nope > 1"}, wait: 1s}', "nope"),
        (
            '{approval: {message: Sure?, when: "1 +"}, wait: 1s}',
            "approval.when: the template cannot be read",
        ),
    ],
)
def test_a_wrong_condition_is_found_in_the_file(approval: str, problem: str) -> None:
    """The message says what is wrong with it."""
    text = f"name: gated\ninputs: {{x: {{type: integer}}}}\nsteps: {{pay: {approval}}}\n"
    with pytest.raises(WorkflowError) as caught:
        compile_text(text, "gated.yaml")
    assert problem in str(caught.value)
