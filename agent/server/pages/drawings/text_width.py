"""How wide a text is, without a browser: an upper bound over the fonts that systems bring.

Text in SVG does not wrap, so a box must be wide enough for the widest of these fonts.
"""

import unicodedata
from typing import Final

_WIDTHS: Final = {
    **dict.fromkeys("ijl.,:;|'!", 0.40),
    **dict.fromkeys("ftrI()[]-/ ", 0.42),
    **dict.fromkeys("abcdeghknopqsuvxyz0123456789_", 0.64),
    **dict.fromkeys("×+=<>~", 0.84),
    "w": 0.82,
    "m": 0.98,
    "…": 1.0,
}
"""In units of the font's size: the widest of DejaVu Sans, Verdana and the systems' own fonts."""
_UPPER: Final = 0.80
_WIDE: Final = 1.05
_ELLIPSIS: Final = "…"


def text_width(text: str, font_px: float) -> float:
    """Return an upper bound for the width of a text in pixels."""
    return sum(map(_width, text)) * font_px


def _width(character: str) -> float:
    known = _WIDTHS.get(character)
    if known is not None:
        return known
    if character.isascii():
        return _UPPER if character not in "MWQ%@#&" else 1.0
    return 0.0 if unicodedata.combining(character) else _WIDE


def fit(text: str, font_px: float, width_px: float) -> str:
    """Return a text that fits into a width: unchanged, or its beginning and an ellipsis."""
    if text_width(text, font_px) <= width_px:
        return text
    left = width_px - text_width(_ELLIPSIS, font_px)
    end = 0
    for end, character in enumerate(text):  # noqa: B007  (used after the loop)
        left -= _width(character) * font_px
        if left < 0:
            break
    return text[:end].rstrip() + _ELLIPSIS
