"""The cost of a regular expression in a schema.

The engine never backtracks: the time is bounded by the length of the text times the states of the
compiled pattern. The states are estimated here from the pattern's text, before it is compiled.
"""

import re
from typing import Final

MAX_WEIGHT: Final = 20_000
"""For all patterns of one schema together: compiling them takes about 200 ms at worst."""

_COUNT = re.compile(r"\{([0-9]{1,9})(,([0-9]{0,9}))?\}")
_BRACES = re.compile(r"\{[^{}]{0,100}\}")
_CLASS_WEIGHT: Final = 50
"""A class of Unicode, such as \\p{L}, is a machine of its own over the bytes of UTF-8."""
_WIDE_WEIGHT: Final = 4


def pattern_weight(pattern: str) -> int:
    """Estimate the states of a pattern: its parts, each times the repetitions around it."""
    open_groups: list[int] = []
    total = last = place = 0
    while place < len(pattern):
        character = pattern[place]
        if character == "(":
            open_groups.append(total + last)
            total = last = 0
            place += 1
        elif character == ")":
            last = total + last
            total = open_groups.pop() if open_groups else 0
            place += 1
        elif character == "{" and (count := _COUNT.match(pattern, place)) is not None:
            last *= max(int(count[1]) + (count[3] == ""), int(count[3] or 0), 1)
            place = count.end()
        elif character in "*+?":
            last += 1
            place += 1
        else:
            total += last
            last, place = _atom(pattern, place)
    return total + last + sum(open_groups)


def _atom(pattern: str, place: int) -> tuple[int, int]:
    """Return the weight of the atom at a position, and the position after it."""
    character = pattern[place]
    if character == "\\":
        named = pattern[place + 1 : place + 2]
        braces = _BRACES.match(pattern, place + 2) if named in ("p", "P", "u", "x") else None
        end = braces.end() if braces is not None else place + 2
        if named in ("p", "P"):
            return _CLASS_WEIGHT, end
        return (_WIDE_WEIGHT if named in ("S", "W", "D") else 1), end
    if character == "[":
        end = _end_of_class(pattern, place)
        content = pattern[place:end]
        wide = "\\p" in content or "\\P" in content
        negated = content.startswith("[^") or any(
            escape in content for escape in ("\\S", "\\W", "\\D")
        )
        return (_CLASS_WEIGHT if wide else _WIDE_WEIGHT if negated else 1), end
    return (_WIDE_WEIGHT if character == "." else 1), place + 1


def _end_of_class(pattern: str, place: int) -> int:
    end = place + 1
    while end < len(pattern) and pattern[end] != "]":
        end += 2 if pattern[end] == "\\" else 1
    return end + 1
