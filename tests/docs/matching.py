"""Compare what a command printed with what a page shows.

Ids, durations, times and process ids differ from run to run. An id of the page stands for the id that the
command printed in its place, for the rest of the page. A line `…` stands for any lines, and `…` at the
end of a line for the rest of it. Runs of spaces are equal: columns are as wide as their values.
"""

import re

_ID = re.compile(r"\b(?=[0-9a-f]*\d)[0-9a-f]{8}\b")
_TOKENS = re.compile(
    r"(?P<id>\b(?=[0-9a-f]*\d)[0-9a-f]{8}\b)"
    r"|(?P<time>\b\d{4}-\d\d-\d\d[ T]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:\d\d)?"
    r"|\b\d\d:\d\d:\d\d(?:\.\d+)?)"
    r"|(?P<duration>(?:\bin )?\b\d+(?:\.\d+)? (?:ms|s|min|h|d)\b(?: \d+ (?:s|min|h)\b)?(?: ago\b)?)"
    r"|(?P<process>\bprocess \d+)"
    r"|(?P<rest>…$)"
    r"|(?P<space>\s+)"
)
_PATTERNS = {
    "time": r"(?:\d{4}-\d\d-\d\d[ T])?\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:\d\d)?",
    "duration": r"(?:(?:in )?\d+(?:\.\d+)? (?:ms|s|min|h|d)(?: \d+ (?:s|min|h))?(?: ago)?|now|just now)",
    "process": r"process \d+",
    "rest": r".*",
    "space": r"\s+",
}


def with_known_ids(text: str, ids: dict[str, str]) -> str:
    """Replace ids of the page by those of this run."""
    return _ID.sub(lambda match: ids.get(match[0], match[0]), text)


def match_output(expected: str, printed: str, ids: dict[str, str]) -> bool:
    """Whether what was printed is what the page shows; on success `ids` learns the page's ids."""
    learned = dict(ids)
    if not _match(_lines(expected), _lines(printed), learned):
        return False
    ids.update(learned)
    return True


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def _match(expected: list[str], printed: list[str], ids: dict[str, str]) -> bool:
    if not expected:
        return not printed
    if expected[0] == "…":
        return any(_match(expected[1:], printed[start:], ids) for start in range(len(printed) + 1))
    if not printed:
        return False
    before = dict(ids)
    if _match_line(expected[0], printed[0], ids) and _match(expected[1:], printed[1:], ids):
        return True
    ids.clear()
    ids.update(before)
    return False


def _match_line(expected: str, printed: str, ids: dict[str, str]) -> bool:
    names: dict[str, str] = {}
    parts, position = [], 0
    for token in _TOKENS.finditer(expected):
        parts.append(re.escape(expected[position : token.start()]))
        parts.append(_pattern(token, ids, names))
        position = token.end()
    parts.append(re.escape(expected[position:]))
    match = re.fullmatch("".join(parts), printed)
    if match is None:
        return False
    ids.update({names[group]: value for group, value in match.groupdict().items()})
    return True


def _pattern(token: re.Match[str], ids: dict[str, str], names: dict[str, str]) -> str:
    kind = str(token.lastgroup)
    if kind != "id":
        return _PATTERNS[kind]
    if token[0] in ids:
        return re.escape(ids[token[0]])
    group = f"id_{token[0]}"
    if group in names:
        return f"(?P={group})"
    names[group] = token[0]
    return f"(?P<{group}>[0-9a-f]{{8}})"
