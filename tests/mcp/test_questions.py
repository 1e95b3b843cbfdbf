"""Questions as clients of MCP show them: all of what is asked, and nothing hidden."""

import json
from typing import Any

import pytest
from mcp_types import ElicitResult

from agent.mcp import questions

HIDDEN = "pay\u202e \x1b[2Jme\u200b"


def _approval(kind: str = "step", **members: Any) -> dict[str, Any]:
    document = {"kind": kind, "workflow": "w", "step": "s", "message": "Pay?", "request": None}
    return {**document, "choices": None, "schema": None, **members}


def test_a_question_hides_nothing() -> None:
    """Control characters and those without a look are written as escapes, wherever they stand."""
    request = {"kind": "shell", "argv": ["echo", HIDDEN]}
    text = questions.message(_approval(message=HIDDEN, step=HIDDEN, request=request))
    assert text is not None
    assert not any(char in text for char in "\u202e\x1b\u200b")
    assert text.count("\\u202e") == 3
    assert json.loads(text[text.index("{") :]) == request


@pytest.mark.parametrize("kind", ["shell", "http", "mail"])
def test_a_question_names_the_kind_of_the_action(kind: str) -> None:
    """The same keys mean something else in another kind of step; `approval` and `input` only ask."""
    assert f'"kind": "{kind}"' in str(questions.message(_approval(request={"kind": kind, "to": 1})))
    assert questions.message(_approval(request={"kind": "input"})) == "Pay?\n(w, step s)"


def test_a_form_hides_nothing_and_its_answer_is_the_choice() -> None:
    """A choice is shown with escapes and recorded as it is; a schema that hides something is not shown."""
    approval = _approval("input", choices=["yes", HIDDEN])
    shown = questions.form(approval)["properties"]["answer"]["enum"]
    assert shown == ["yes", "pay\\u202e \\x1b[2Jme\\u200b"]
    answer = ElicitResult(action="accept", content={"answer": shown[1]})
    assert questions.decision(approval, answer) == ("answer", {"value": HIDDEN})
    for schema in (
        {"type": "string", "enum": [HIDDEN]},
        {"type": "object", "properties": {HIDDEN: {"type": "string"}}},
    ):
        approval = _approval("input", schema=schema)
        member = questions.form(approval)["properties"]["answer"]
        assert member == {"type": "string", "description": "the value as JSON"}
        answer = ElicitResult(action="accept", content={"answer": json.dumps(HIDDEN)})
        assert questions.decision(approval, answer) == ("answer", {"value": HIDDEN})
