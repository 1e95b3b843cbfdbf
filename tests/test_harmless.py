"""What people are shown is what is there: nothing hidden, nothing in another order."""

import json
import sys
import unicodedata

import hypothesis
import pytest
from hypothesis import strategies

from agent.harmless import harmless, harmless_json

IGNORED = (
    *(0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0, 0x2028, 0x2029),
    *range(0x180B, 0x1810),
    *range(0xFE00, 0xFE10),
    *range(0xE0000, 0xE1000),
)


def test_all_that_cannot_be_seen_is_escaped() -> None:
    """Every format and control character, and every one that looks like nothing."""
    hidden = {
        number
        for number in range(sys.maxunicode + 1)
        if unicodedata.category(chr(number)) in ("Cc", "Cf", "Cs")
    }
    hidden = (hidden | set(IGNORED)) - {ord("\n"), ord("\t")}
    assert {0x200B, 0x200D, 0x200E, 0x200F, 0x061C, 0xAD, 0xFEFF, 0xE0041, 0x202E} <= hidden
    for number in hidden:
        shown = harmless(f"a{chr(number)}b")
        assert shown.isascii() and shown.isprintable(), hex(number)
        assert shown == f"a{ascii(chr(number))[1:-1]}b"


@pytest.mark.parametrize(
    "text",
    ["plain", "a\tb\nc", "Grüße, שלום, 天気, हिन्दी", "👩‍👩‍👧 ❤️‍🔥 🏳️‍🌈 ✔️ 👍🏽", "1\u00a0000 €"],
)
def test_other_texts_stay_as_they_are(text: str) -> None:
    """Scripts, spaces that look like spaces, and emoji with what holds them together."""
    assert harmless(text) == text
    assert json.loads(harmless_json(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "a\u200db",
        "👩\u200da",
        "a\u200d👧",
        "👩\u200d\u200d👧",
        "a\ufe0f",
        "✔\ufe0f\ufe0f",
        "👩\u200d",
    ],
)
def test_joiners_and_selectors_outside_of_emoji_are_escaped(text: str) -> None:
    """There they change nothing that can be seen."""
    shown = harmless(text)
    assert "\\u200d" in shown or "\\ufe0f" in shown


@hypothesis.given(strategies.recursive(strategies.text(), strategies.lists))
def test_json_reads_back_as_the_very_same(value: object) -> None:
    """Escapes of JSON lose nothing, and hide nothing."""
    for indent in (None, 2):
        text = harmless_json(value, indent)
        assert json.loads(text) == value
        assert harmless(text) == text
