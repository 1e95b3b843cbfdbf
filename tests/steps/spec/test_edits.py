"""Typed changes of an approval take the types of what was shown."""

import pytest

from agent.steps.spec.questions import read_edits, value_at
from agent.steps.spec.unknown_question import unknown_question, what_happened

CONFIG = {"text": "12", "n": 3, "flag": True, "list": [1], "deep": {"key": 1.5}, "none": None}


def test_values_have_the_types_of_what_was_shown() -> None:
    """A text stays a text, also where it looks like a number; null may become anything."""
    texts = {"text": "13", "n": "4", "flag": "false", "list": "[2]", "deep.key": "2", "none": "x"}
    edits = read_edits(CONFIG, texts)
    assert edits == {
        "text": "13",
        "n": 4,
        "flag": False,
        "list": [2],
        "deep.key": 2,
        "none": "x",
    }
    assert value_at(CONFIG, "deep.key") == 1.5


@pytest.mark.parametrize(
    ("path", "text", "wanted"),
    [("n", "many", "a number"), ("flag", "1", "true or false"), ("list", "a", "a list")],
)
def test_another_type_is_refused(path: str, text: str, wanted: str) -> None:
    """The message names the key, the type and what is shown."""
    with pytest.raises(ValueError, match=f"{path}: give {wanted}, as what is shown"):
        read_edits(CONFIG, {path: text})


def test_what_is_known_of_an_unknown_effect() -> None:
    """An answer that decides nothing is named; of a process that died nothing is known."""
    message = "POST http://x/ was answered with status 500; whether it took effect is unknown"
    answered = what_happened({"class": "unknown", "message": message})
    assert answered == "was answered with status 500"
    assert what_happened({"class": "crash", "message": "died"}) is None
    asked = unknown_question("pay", "POST http://x/", None, has_changed=False, happened=answered)
    assert asked.endswith("; it was answered with status 500. Did it happen?")
    plain = unknown_question("pay", "sh", None, has_changed=False)
    assert "its result was never recorded" in plain
