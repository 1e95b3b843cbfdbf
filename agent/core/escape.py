"""Texts from mail, pages and models, written so that they cannot deceive the person who reads them.

Every surface that shows such a text uses these functions: pages, chats, terminals and console logs.
Characters that are invisible, or that change how others are shown, are written as escapes:

- control characters, except line breaks and tabs;
- all format characters (Unicode category Cf): marks of direction, zero-width characters, tags, soft
  hyphens;
- characters that look like nothing: fillers, blanks, variation selectors, joiners;
- line and paragraph separators, and code points that have no agreed look (private, unassigned).

Joiners and the emoji selector stay where they change what is seen: inside of an emoji, as in a family,
a flag or a key; and where scripts are written with them, by the rules of RFC 5892 for names of hosts:
after a virama of an Indic script, and, for the non-joiner, between Arabic letters that would join.
Elsewhere they could only hide something.
"""

import json
import re
from functools import lru_cache
from typing import Any, Final

_HIDDEN_CATEGORIES: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_BLANKS: Final = frozenset(
    # A combining joiner, fillers of Hangul, vowels of Khmer without a look, a blank of Braille.
    map(chr, (0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0))
)
_SELECTORS: Final = ((0x180B, 0x180F), (0xFE00, 0xFE0F), (0xE0100, 0xE01EF))

_EMOJI: Final = (
    "[\u00a9\u00ae\u203c\u2049\u2122\u2139\u2194-\u2199\u21a9\u21aa\u231a\u231b\u2328\u23cf"
    "\u23e9-\u23f3\u23f8-\u23fa\u24c2\u25aa\u25ab\u25b6\u25c0\u25fb-\u25fe\u2600-\u27bf\u2934\u2935"
    "\u2b05-\u2b07\u2b1b\u2b1c\u2b50\u2b55\u3030\u303d\u3297\u3299\U0001f000-\U0001faff]"
)
_VIRAMA: Final = "[\u094d\u09cd\u0a4d\u0acd\u0b4d\u0bcd\u0c4d\u0ccd\u0d4d\u0dca]"
_INDIC: Final = "[\u0900-\u0dff]"
# Letters that join the next one, marks that may stand between, letters that join the one before.
_JOINING: Final = (
    "[\u0620\u0626\u0628\u062a-\u062e\u0633-\u063f\u0641-\u0647\u0649\u064a\u066e\u066f\u0678-\u0687"
    "\u069a-\u06bf\u06c1\u06c2\u06cc\u06ce\u06d0\u06d1\u06fa-\u06fc\u06ff]"
)
_MARK: Final = "[\u064b-\u0652\u0670]"
_JOINED: Final = (
    "[\u0620\u0622-\u063f\u0641-\u064a\u066e\u066f\u0671-\u0673\u0675-\u06d3\u06d5\u06ee\u06ef"
    "\u06fa-\u06fc\u06ff]"
)
_SEEN: Final = (
    "("
    + "|".join(
        (
            f"(?<={_EMOJI})\ufe0f",
            "(?<=[0-9#*])\ufe0f(?=\u20e3)",
            f"(?:(?<={_EMOJI})|(?<={_EMOJI}\ufe0f))\u200d(?={_EMOJI})",
            f"(?<={_VIRAMA})(?:\u200d|\u200c(?={_INDIC}))",
            # Bengali writes a ra that keeps its form before another consonant.
            "(?<=\u09b0)\u200d(?=\u09cd)",
            f"(?:(?<={_JOINING})|(?<={_JOINING}{_MARK}))\u200c(?={_JOINED})",
        )
    )
    + ")"
)
"""Where joiners and selectors change what is seen; compiled for the few texts that need it."""


def harmless(text: str) -> str:
    """Write characters that are invisible, or change how a text is shown, as escapes."""
    return _translated(text, lambda char: ascii(char)[1:-1])


def harmless_json(value: Any, indent: int | None = None) -> str:
    """Write a value as JSON in which nothing is hidden; it reads back as the very same value."""
    return _translated(json.dumps(value, ensure_ascii=False, indent=indent), _json_escape)


def slack_escaped(text: str) -> str:
    """Return a text for a field in which Slack reads markup: nothing in it is read as such."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


@lru_cache(maxsize=4096)
def is_hidden(char: str) -> bool:
    """Whether a character is shown as an escape."""
    # Not needed for plain ASCII, which most texts are.
    import unicodedata

    if char in "\n\t":
        return False
    number = ord(char)
    return (
        unicodedata.category(char) in _HIDDEN_CATEGORIES
        or char in _BLANKS
        or any(first <= number <= last for first, last in _SELECTORS)
    )


def _translated(text: str, escape: Any) -> str:
    if text.isascii() and text.replace("\n", "").replace("\t", "").isprintable():
        return text
    table = {ord(char): escape(char) for char in set(text) if is_hidden(char)}
    if not table:
        return text
    # Every second piece stays.
    pieces = enumerate(re.split(_SEEN, text))
    return "".join(piece if number % 2 else piece.translate(table) for number, piece in pieces)


def _json_escape(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
