"""Waits have one stored form, which workers of every version read and write."""

import json
from typing import Any, get_args

import pytest

from agent.core import waits
from agent.core.waits import (
    Approval,
    Child,
    ChildRequest,
    EndedWait,
    Items,
    Signal,
    Timer,
    UnknownCall,
    Wait,
    Work,
)

STORED: list[tuple[Wait, str]] = [
    (Timer(17), '{"timer": 17}'),
    (Timer(17, on_unknown="ask"), '{"timer": 17, "in_doubt": "ask"}'),
    (Timer(17, store_error="größer"), '{"timer": 17, "store": "größer"}'),
    (Signal("go"), '{"signal": "go"}'),
    (Signal(""), '{"signal": ""}'),
    (ChildRequest("w", {"n": 1}), '{"child": {"workflow": "w", "input": {"n": 1}}}'),
    (ChildRequest("w", {}, 0), '{"child": {"workflow": "w", "input": {}, "for": 0}}'),
    (Child("c1"), '{"child": "c1"}'),
    (Child("c1", 3), '{"child": "c1", "for": 3}'),
    (Child(None, 0), '{"child": null, "for": 0}'),
    (Approval("a1"), '{"approval": "a1"}'),
    (UnknownCall("k1"), '{"unknown": "k1"}'),
    (UnknownCall("k1", "a1"), '{"unknown": "k1", "approval": "a1"}'),
    (Work("w1", "q"), '{"work": "w1", "queue": "q"}'),
    (Work("w1", "q", "a1"), '{"work": "w1", "queue": "q", "approval": "a1"}'),
    (Items(0), '{"items": 0}'),
    (Items(500), '{"items": 500}'),
]
"""Every form that was ever written, by this version and by earlier ones."""


@pytest.mark.parametrize(("on", "text"), STORED, ids=[text for _, text in STORED])
def test_a_wait_has_one_stored_form(on: Wait, text: str) -> None:
    """What is written is read as the same wait, byte for byte as earlier versions wrote it."""
    assert waits.dump(on) == text
    assert waits.parse(text) == on
    assert waits.from_document(waits.to_document(on)) == on
    assert next(iter(json.loads(text))) == waits.KEYS[type(on)], "lists find it by its first key"


def test_every_type_has_a_form() -> None:
    """No type of wait is left out of the table of forms."""
    assert {type(on) for on, _ in STORED} == set(get_args(Wait)) == set(waits.KEYS)


RESULTS: list[dict[str, Any]] = [
    {},
    {"value": {"n": 1}},
    {"value": None},
    {"expired": True},
    {"status": "succeeded"},
    {"status": "refused", "error": {"message": "no"}},
    {"decision": "approved"},
    {"decision": None},
]


@pytest.mark.parametrize(("on", "text"), STORED, ids=[text for _, text in STORED])
@pytest.mark.parametrize("result", RESULTS, ids=str)
def test_a_result_is_added_to_the_wait(on: Wait, text: str, result: dict[str, Any]) -> None:
    """A woken step finds both, and the wait itself can still be read."""
    ended = waits.dump_ended(text, result)
    assert json.loads(ended) == {**json.loads(text), **result}
    assert waits.parse_ended(ended) == EndedWait(on, result)
    assert waits.parse(ended) == on


def test_nothing_and_what_a_later_version_writes_are_no_wait() -> None:
    """A step that was woken without having waited; a form that this version does not know."""
    assert waits.parse(None) is waits.parse("{}") is waits.parse('{"later": "x"}') is None
    assert waits.parse_ended(None) is None
    assert waits.parse_ended(waits.dump_ended(None, {"status": "lost"})) == EndedWait(
        None, {"status": "lost"}
    )
    assert waits.parse_ended('{"later": "x"}') == EndedWait(None, {"later": "x"})


def test_a_damaged_wait_is_refused() -> None:
    """Text that is no JSON is an error of that step, which the engine sets aside."""
    with pytest.raises(ValueError, match="Expecting property name"):
        waits.parse("{broken")


@pytest.mark.parametrize(("on", "text"), STORED, ids=[text for _, text in STORED])
def test_a_question_is_found_also_about_an_unknown_call(on: Wait, text: str) -> None:
    """Every stored `approval` is the question that the step waits on."""
    assert waits.approval_of(on) == json.loads(text).get("approval")


def test_lists_show_the_first_paragraph_of_a_question() -> None:
    """What follows it, such as the mail that is answered, is shown with the question."""
    assert waits.headline("\nSend it\nto Ada?\n\nThe mail:\n> Hi") == "Send it to Ada?"
    assert waits.headline(None) == ""
