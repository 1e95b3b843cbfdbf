"""Large JSON values cut to a size: long texts, lists and objects keep their beginnings."""

import json
from typing import Final

from agent.steps.types.outcome import Json

_MIN_TEXT: Final = 64
"""No text is cut below this length."""
_MIN_MEMBERS: Final = 3
_MARK: Final = "…"


def clipped(value: Json, most: int) -> tuple[Json, bool]:
    """Return a value whose JSON has about `most` characters, and whether anything was cut."""
    if _size(value) <= most:
        return value, False
    texts, members = most // 2, 256
    while True:
        cut = _cut(value, texts, members)
        if _size(cut) <= most or (texts <= _MIN_TEXT and members <= _MIN_MEMBERS):
            break
        texts, members = max(texts // 2, _MIN_TEXT), max(members // 2, _MIN_MEMBERS)
    if _size(cut) > most:
        # Deep and wide at once: nothing of its structure is worth keeping.
        text = json.dumps(value, ensure_ascii=False, default=str)
        return _cut_text(text, most // 2), True
    return cut, True


def _size(value: Json) -> int:
    return len(json.dumps(value, ensure_ascii=False, default=str))


def _cut(value: Json, texts: int, members: int) -> Json:
    match value:
        case str():
            return _cut_text(value, texts)
        case list():
            kept: list[Json] = [_cut(member, texts, members) for member in value[:members]]
            left = len(value) - members
            return [*kept, f"{_MARK} {left:,} more"] if left > 0 else kept
        case dict():
            names = list(value)[:members]
            shown = {_cut_text(name, texts): _cut(value[name], texts, members) for name in names}
            left = len(value) - members
            return {**shown, _MARK: f"{left:,} more"} if left > 0 else shown
        case _:
            return value


def _cut_text(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    return f"{text[:most]}{_MARK} ({len(text):,} characters)"
