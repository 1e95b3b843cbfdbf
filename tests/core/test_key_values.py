"""`key=value` as people type it."""

import pytest

from agent.core.key_values import parse_pairs, parse_value


def test_pairs_are_read_up_to_the_first_equals_sign() -> None:
    """A value may be empty and may contain more of them."""
    assert parse_pairs(["a=1", "b=", "c=x=y"]) == {"a": "1", "b": "", "c": "x=y"}


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        (["a"], "a: write it as KEY=VALUE"),
        (["=1"], "=1: write it as KEY=VALUE"),
        (["a=1", "a=2"], "a: given twice"),
    ],
)
def test_a_bad_pair_is_named(pairs: list[str], message: str) -> None:
    """The message shows the pair and how to write one."""
    with pytest.raises(ValueError, match=f"^{message}$"):
        parse_pairs(pairs, "KEY=VALUE")


@pytest.mark.parametrize(
    ("text", "value"), [("1", 1), ('{"a": []}', {"a": []}), ("x", "x"), ("", ""), ("[" * 9999,) * 2]
)
def test_a_value_is_json_or_text(text: str, value: object) -> None:
    """What is not valid JSON is taken as it was typed."""
    assert parse_value(text) == value
