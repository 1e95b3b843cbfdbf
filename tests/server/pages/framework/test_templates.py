"""How templates write texts: code, names that may break, and durations that may not."""

import re
from html import unescape
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.escape import harmless
from agent.server.pages.framework.templates import (
    breakable,
    dollars,
    duration,
    headed,
    marked,
    one_line,
    sentence,
    tool_answer,
    with_code,
)


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


@pytest.mark.parametrize(
    ("response", "shown"),
    [
        ({"text": '{"exit_code": 0}'}, {"exit_code": 0}),
        ({"text": "three files"}, "three files"),
        ({"text": "{not JSON"}, "{not JSON"),
        ({"text": "a", "more": 1}, {"text": "a", "more": 1}),
        (["a"], ["a"]),
    ],
)
def test_the_answer_of_a_tool_is_what_the_model_read(response: Any, shown: Any) -> None:
    """Its wrapping and the quotation marks of JSON in JSON are left out."""
    assert tool_answer(response) == shown


def test_arguments_take_one_line() -> None:
    """Only a long value is cut."""
    assert one_line({"argv": ["ls", "-la"]}) == '{"argv": ["ls", "-la"]}'
    assert one_line("x" * 50, 10).startswith("x" * 10 + "\n… 40 more")


@pytest.mark.parametrize(
    ("amount", "text"),
    [(0, "$0.00"), (0.25, "$0.25"), (0.0042, "$0.0042"), (1234.5, "$1,234.50")],
)
def test_money_has_the_digits_that_count(amount: float, text: str) -> None:
    """Cents, and parts of a cent where there is no more."""
    assert dollars(amount) == text


def test_a_message_becomes_a_sentence() -> None:
    """It begins with a capital letter and ends with one mark."""
    assert sentence("the budget is used up") == "The budget is used up."
    assert [sentence(text) for text in ("Why?", "")] == ["Why?", ""]


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("Pay <b>?", ("Pay &lt;b&gt;?", "")),
        ("Pay?\n\nnow\nor **never**", ("Pay?", "now\nor <strong>**never**</strong>")),
        (
            "a\n# b\n1. `c`\n- _d_",
            ("a", "<strong># b</strong>\n1. <code>`c`</code>\n- <em>_d_</em>"),
        ),
        ("a\n```x\n**b**\n```\nc", ("a", "<code>```x\n**b**\n```</code>\nc")),
        # Parts of names and of sums are no marks.
        ("Delete __init__.py and a_b_c?", ("Delete __init__.py and a_b_c?", "")),
        ("Pay 2*3*4, or ~~35~~ 99?", ("Pay 2*3*4, or ~~35~~ 99?", "")),
        # What a stranger writes can neither hide nor pretend to be another address.
        ("a\n[b](javascript:c)", ("a", "[b](javascript:c)")),
        (
            "[bank.example](https://evil.example/?a&b).",
            (
                '[bank.example](<a href="https://evil.example/?a&amp;b">https://evil.example/?a&amp;b</a>).',
                "",
            ),
        ),
        ('a\n<img src="x">\u202e', ("a", "&lt;img src=&#34;x&#34;&gt;\\u202e")),
    ],
)
def test_the_text_of_a_question_is_formatted(message: str, shown: tuple[str, str]) -> None:
    """Its first line is a heading, its lines stay, and what is marked looks so."""
    assert headed(message) == shown


@given(
    st.sampled_from(["", "https://a", "```\n"]),
    st.text(st.sampled_from("a1 _*`#~->|.:/[](){}<&;\\\n\"'@\u202e")),
)
def test_a_formatted_text_has_all_of_its_characters(start: str, rest: str) -> None:
    """Whatever the marks are: without the tags it is what was written."""
    text = start + rest
    assert unescape(re.sub("<[^>]*>", "", marked(text))) == harmless(text)
