"""Colours of sources: what is a key, a comment or a template, and that nothing is lost or injected."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup

from agent.core.escape import harmless
from agent.server.pages.workflows.yaml_colours import coloured


def _marks(*lines: str) -> list[list[tuple[str, str]]]:
    """Return (kind, text) of what is marked in each line."""
    return [
        [
            (kind, Markup(text).unescape())
            for kind, text in re.findall(r'<span class="y-(\w+)">(.*?)</span>', str(line))
        ]
        for line in coloured(lines)
    ]


@pytest.mark.parametrize(
    ("line", "marks"),
    [
        ("name: pay-invoice", [("key", "name")]),
        (
            "  - fetch: {get: x}  # twice",
            [("key", "fetch"), ("key", "get"), ("comment", "# twice")],
        ),
        ('message: "Pay {{ n }}?"', [("key", "message"), ("template", "{{ n }}")]),
        ("if: {{ a }} # b", [("key", "if"), ("template", "{{ a }}"), ("comment", "# b")]),
        ('color: "#fff"', [("key", "color")]),
        ("url: https://example.com:80/a#b", [("key", "url")]),
        ("say: don't # stop", [("key", "say"), ("comment", "# stop")]),
        ("plain text", []),
    ],
)
def test_parts_of_a_line(line: str, marks: list[tuple[str, str]]) -> None:
    """Keys, comments and templates, also in quotes and in flow style."""
    assert _marks(line) == [marks]


def test_a_block_of_text_has_no_keys() -> None:
    """A script may have lines that read like keys or comments."""
    lines = ["script: |", "  # not: a comment", "", "  echo {{ x }}", "next: 1"]
    assert _marks(*lines) == [
        [("key", "script")],
        [],
        [],
        [("template", "{{ x }}")],
        [("key", "next")],
    ]


def test_a_very_long_line_is_plain() -> None:
    """Its marks would take longer than the rest of the page."""
    line = "a: " + "{{ " * 200_000
    assert _marks(line, "b: 1") == [[], [("key", "b")]]


@given(st.lists(st.text(st.sampled_from("a<>&\"'{}%#:|- \u202e"), max_size=20), max_size=4))
def test_nothing_is_lost_or_injected(lines: list[str]) -> None:
    """Without the marks a line is the same text, escaped."""
    for line, shown in zip(lines, coloured(lines), strict=True):
        plain = re.sub(r'<span class="y-\w+">|</span>', "", str(shown))
        assert "<" not in plain
        assert Markup(plain).unescape() == harmless(line)
