"""What people are shown in chats is what is there."""

from typing import Any

from agent.channels.chat import buttons, message_texts

_TURNED = "evil\u202efdp.exe"
_DOCUMENT: dict[str, Any] = {
    "id": "0199d2c4-7d5e-7c31-9d0f-3f1f7b6c2a11",
    "task": "0199d2c4-7d5e-7c31-9d0f-3f1f7b6c2a10",
    "kind": "approval",
    "workflow": "paying",
    "step": "pay",
    "status": "denied",
    "message": f"Open {_TURNED}?",
    "expires_at": None,
    "choices": None,
    "schema": None,
    "editable": [],
    "request": {"kind": "shell", "config": {"argv": ["open", _TURNED]}},
    "decision": {
        "by": "7",
        "channel": "slack",
        "comment": _TURNED,
        "value": None,
        "edits": None,
    },
}


def test_nothing_is_shown_in_another_order_than_it_is() -> None:
    """A character that turns the direction of writing is shown as what it is."""
    asked, is_whole = message_texts.question(_DOCUMENT, 4000)
    assert is_whole
    for text in (asked, message_texts.closed_question(_DOCUMENT, 4000)):
        assert "\u202e" not in text
        assert text.count(r"evil\u202efdp.exe") == 2


def test_buttons_show_what_they_answer() -> None:
    """A choice with a character that cannot be seen is not taken for another."""
    document = _DOCUMENT | {"kind": "input", "choices": ["yes", "yes\u200e"]}
    labels = [label for label, _ in buttons.answers_of(document)]
    assert labels == ["yes", r"yes\u200e", "Deny"]
    assert buttons.answers_of(document)[1][1]["value"] == "yes\u200e"


def test_lines_and_errors_hide_nothing() -> None:
    """Every other text about tasks is escaped as well."""
    assert "\u200f" not in message_texts.approval_line(_DOCUMENT | {"message": "a\u200fb"})
    assert message_texts.error({"message": "a\u200fb"}) == r"a\u200fb"


def test_an_input_is_asked_for_in_words() -> None:
    """A person sees choices as a list and a schema in words, and no JSON."""
    document = _DOCUMENT | {"kind": "input", "status": "pending", "message": "How much?"}
    chosen, _ = message_texts.question(document | {"choices": ["a little", 3]}, 4000)
    assert chosen.endswith("choose one:\n• a little\n• 3")
    schema = {
        "type": "object",
        "required": ["amount"],
        "properties": {
            "amount": {"type": "integer", "minimum": 1, "maximum": 9},
            "why": {"type": "string", "description": "for the record"},
            "size": {"enum": ["s", "m"]},
            "tags": {"type": "array", "items": {"type": "string"}},
        },
    }
    asked, is_whole = message_texts.question(document | {"schema": schema}, 4000)
    assert is_whole
    assert asked.endswith(
        "answer with an object with\n"
        "• amount: a whole number (at least 1, at most 9)\n"
        "• why: a text – for the record (may be left out)\n"
        "• size: one of s, m (may be left out)\n"
        "• tags: a list of: a text (may be left out)"
    )
    plain, _ = message_texts.question(document, 4000)
    assert plain.endswith("answer with a text")
    for text in (chosen, asked, plain):
        assert "{" not in text


def test_values_are_readable() -> None:
    """Members are lines, without brackets."""
    value = {"total": 3, "done": True, "none": None, "items": ["a", {"b": 1}], "empty": []}
    assert message_texts.readable(value) == (
        "total: 3\ndone: yes\nnone: nothing\nitems:\n  • a\n  •\n    b: 1\nempty: none"
    )


def test_a_retried_task_names_its_retry() -> None:
    """A failure that is dealt with does not look like one that needs a person."""
    task = {"id": _DOCUMENT["task"], "workflow": "paying", "activity": "failed"}
    again = {"retried_as": {"id": _DOCUMENT["id"], "status": "succeeded"}}
    line = message_texts.task_line(task | again)
    assert line == "✗ 7b6c2a10  paying: failed, retried as 7b6c2a11 (succeeded)"
