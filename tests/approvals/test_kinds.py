"""The kinds that ask: `approval` and `input`, and which answers fit."""

from typing import Any

import pytest

from agent.approvals.answering import InvalidAnswerError
from agent.steps.spec.questions import answer_problem, read_answer
from tests.support.approvals import asked, asks, pending, say
from tests.support.engine import Engine


def test_an_approval_step_says_who_approved(engine: Engine) -> None:
    """Its output is the decision, for the steps that come after it."""
    task_id, approval = asked(engine, asks("ask"))
    say(engine, approval, "approve", comment="go on")
    assert engine.wait(task_id, "succeeded")["output"] == {
        "ask": {"decision": "approved", "by": "ada", "comment": "go on", "value": None}
    }


@pytest.mark.parametrize(
    ("config", "bad", "good"),
    [
        ({}, 12, "a text"),
        ({}, "", "a text"),
        ({"choices": ["red", 2, True]}, "blue", "red"),
        ({"choices": ["red", 2, True]}, 1, True),
        ({"schema": {"type": "object", "required": ["n"]}}, {"m": 1}, {"n": 1}),
        ({"schema": {"type": ["null", "integer"]}}, "12", None),
    ],
)
def test_an_input_step_takes_what_fits(
    engine: Engine, config: dict[str, Any], bad: Any, good: Any
) -> None:
    """A value that does not fit is refused and decides nothing; one that fits is the output."""
    task_id, approval = asked(engine, asks("ask", "input", **config))
    with pytest.raises(InvalidAnswerError):
        say(engine, approval, "answer", value=bad)
    with pytest.raises(InvalidAnswerError, match="answer or deny it"):
        say(engine, approval, "approve")
    assert [found["status"] for found in pending(engine, task_id)] == ["pending"]
    say(engine, approval, "answer", value=good)
    output = engine.wait(task_id, "succeeded")["output"]["ask"]
    assert output == {"decision": "answered", "by": "ada", "comment": None, "value": good}


def test_an_input_can_be_denied(engine: Engine) -> None:
    """A question for a value needs no value then."""
    task_id, approval = asked(engine, asks("ask", "input"))
    say(engine, approval, "deny")
    assert engine.wait(task_id, "failed")["error"]["message"] == "approval denied by ada"


@pytest.mark.parametrize(
    ("typed", "choices", "schema", "meant"),
    [
        ("12", None, None, "12"),
        ("12", None, {"type": "integer"}, 12),
        ("12", None, {"type": "string"}, "12"),
        ("[1", None, {"type": "array"}, "[1"),
        ("2", ["red", 2], None, 2),
        ("true", [True], None, True),
        ("blue", ["red"], None, "blue"),
        ("NaN", None, {"type": "string"}, "NaN"),
        ("pay\\u200b", ["pay\u200b", "pay"], None, "pay\u200b"),
        ('"pay\\u200b"', ["pay\u200b", "pay"], None, "pay\u200b"),
        ('"pay"', ["pay\u200b", "pay"], None, "pay"),
        ("pay", ["pay\u200b", "pay"], None, "pay"),
        ("pay\\u200b", ["pay\u200b", "pay\\u200b"], None, "pay\\u200b"),
        ("\\xad", ["\u00ad", 1], None, "\u00ad"),
        ("1", ["1\u200b", 1], None, 1),
    ],
)
def test_a_typed_value_is_read_by_the_questions_schema(
    typed: str, choices: list[Any] | None, schema: dict[str, Any] | None, meant: Any
) -> None:
    """The schema decides whether 12 is a number or a text."""
    read = read_answer(typed, choices, schema)
    assert read == meant and type(read) is type(meant)


def test_why_a_value_does_not_fit() -> None:
    """The reason is for the person who gave it."""
    assert answer_problem("x", ["red", 2], None) == "give one of red, 2"
    assert answer_problem(None, None, None) == "give a text"
    problem = answer_problem({"n": "1"}, None, {"properties": {"n": {"type": "integer"}}})
    assert problem is not None
    assert "value.n" in problem and "output" not in problem
