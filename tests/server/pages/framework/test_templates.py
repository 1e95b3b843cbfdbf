"""How templates write texts: code, names that may break, and durations that may not."""

import pytest

from agent.server.pages.framework.templates import breakable, duration, with_code


@pytest.mark.parametrize(
    ("text", "markup"),
    [
        ("`sh -c <x>` of step pay", "<code>sh -c &lt;x&gt;</code> of step pay"),
        ("an open ` & quotation", "an open ` &amp; quotation"),
        ("plain", "plain"),
    ],
)
def test_parts_in_backticks_are_code(text: str, markup: str) -> None:
    """Everything is escaped; a quotation that does not end stays a backtick."""
    assert with_code(text) == markup


def test_a_name_breaks_between_its_words() -> None:
    """A narrow column must not break it inside a word."""
    assert breakable("task.activity_changed<") == "task.<wbr>activity_<wbr>changed&lt;"


@pytest.mark.parametrize("seconds", [0.08, 3.2, 125, 7_300, 200_000])
def test_a_duration_does_not_break(seconds: float) -> None:
    """A number stays beside its unit at the end of a line."""
    assert not any(char == " " for char in duration(seconds))
    assert "\N{NO-BREAK SPACE}" in duration(seconds)
