"""Texts from mail, pages and models, written so that they cannot deceive the person who reads them.

Every surface that shows such a text uses these functions: pages, chats, terminals and console logs.
What cannot be seen, and what changes how other characters are shown, is written as an escape:

- control characters, except line breaks and tabs;
- all format characters (Unicode category Cf): marks of direction, zero-width characters, tags, soft
  hyphens;
- characters that look like nothing: fillers, blanks, variation selectors, joiners;
- line and paragraph separators, and code points that have no agreed look (private, unassigned).

One exception: inside of an emoji, a joiner and the emoji selector change what is seen, as in a
family or a flag, and stay as they are.
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

_EMOJI: Final = "[\u2600-\u27bf\U0001f000-\U0001faff]"
_IN_EMOJI: Final = re.compile(
    f"((?<={_EMOJI})\ufe0f|(?:(?<={_EMOJI})|(?<={_EMOJI}\ufe0f))\u200d(?={_EMOJI}))"
)


def harmless(text: str) -> str:
    """Write what cannot be seen, or would change how a text is shown, as escapes."""
    return _translated(text, lambda char: ascii(char)[1:-1])


def harmless_json(value: Any, indent: int | None = None) -> str:
    """Write a value as JSON in which nothing is hidden; it reads back as the very same value."""
    return _translated(json.dumps(value, ensure_ascii=False, indent=indent), _json_escape)


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
    if text.isascii() and text.isprintable():
        return text
    table = {ord(char): escape(char) for char in set(text) if is_hidden(char)}
    if not table:
        return text
    # Every second piece is a part of an emoji.
    pieces = enumerate(_IN_EMOJI.split(text))
    return "".join(piece if number % 2 else piece.translate(table) for number, piece in pieces)


def _json_escape(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
