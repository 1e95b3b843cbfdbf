"""Durations as people write them: `90s`, `1h30m`, `500ms`."""

import re
from typing import Final

MAX_SECONDS: Final = 365 * 86_400.0
"""One year: more than that is a mistake."""

_UNITS: Final = {"w": 604_800.0, "d": 86_400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_PART: Final = r"([0-9]{1,12}(?:\.[0-9]{1,6})?)(ms|w|d|h|m|s)"
_WHOLE: Final = f"(?:{_PART})+"

PATTERN: Final = r"^([0-9]+(\.[0-9]+)?(ms|w|d|h|m|s))+$"
"""For editors: the same form as a JSON Schema pattern."""


def parse_duration(value: object) -> float:
    """Return the seconds that a text such as `1h30m` stands for; raise `ValueError` for people."""
    if not isinstance(value, str):
        raise ValueError(f"a duration is text with a unit, such as {_suggested(value)}")
    text = value.strip()
    if not re.fullmatch(_WHOLE, text):
        if text.startswith("-"):
            raise ValueError(f"a duration cannot be negative, as {value!r} is")
        shown = text if len(text) <= 40 else text[:37] + "..."
        raise ValueError(
            f"{shown!r} is not a duration; write a number and a unit (ms, s, m, h, d, w), "
            "such as 30s, 5m or 1h30m"
        )
    parts = re.findall(_PART, text)
    order = [list(_UNITS).index(unit) for _, unit in parts]
    if order != sorted(set(order)):
        raise ValueError(f"{text!r} names its units twice or out of order; write the largest first")
    seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
    if seconds > MAX_SECONDS:
        raise ValueError(f"{text!r} is longer than a year")
    return round(seconds, 6)


def format_duration(seconds: float) -> str:
    """Write seconds in the shortest form that `parse_duration` reads back."""
    milliseconds = round(seconds * 1000)
    if milliseconds == 0:
        return "0s"
    text = ""
    for unit, size in _UNITS.items():
        if unit == "w":
            continue
        count, milliseconds = divmod(milliseconds, round(size * 1000))
        if count:
            text += f"{count}{unit}"
    return text


def _suggested(value: object) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e9:
        return f"{value:g}s"
    return "30s, 5m or 1h30m"
