"""Reads the simplest templates without Jinja: names, filters without arguments, one comparison.

Most templates are of this form, and to check a workflow file needs only what they look up. Jinja is
imported when a template is computed, or when it has another form. What is read here, Jinja reads alike;
a test compares the two.
"""

import re
from typing import Final

from agent.workflows.templates.limits import MAX_TEMPLATE_CHARS
from agent.workflows.templates.undefined import Path

MAX_LOOKUP_CHARS: Final = 1_000
FILTERS: Final = frozenset(
    ["capitalize", "first", "float", "int", "last", "length", "list", "lower", "string", "title",
     "tojson", "trim", "upper"]
)  # fmt: skip
"""Filters that need no argument; not all of them."""

_CONSTANTS: Final = frozenset(["true", "false", "none", "True", "False", "None"])
_KEYWORDS: Final = _CONSTANTS | {"and", "else", "if", "in", "is", "not", "or"}
_JINJAS_OWN: Final = frozenset(["loop", "range"])
_MAX_PARTS: Final = 20

_WORD: Final = r"[A-Za-z_][A-Za-z0-9_]*"
_CHAIN: Final = rf"{_WORD}(?:\.{_WORD}|\[[0-9]{{1,9}}\])*"
_CONSTANT: Final = r"(?:0|[1-9][0-9]{0,14})|'[^'\\\n{}]*'|\"[^\"\\\n{}]*\""
_LOOKUP: Final = re.compile(rf"({_WORD})((?:\.{_WORD}|\[[0-9]{{1,9}}\])*)")
_PART: Final = re.compile(rf"\.({_WORD})|\[([0-9]+)\]")
_EXPRESSION: Final = rf" *({_CHAIN})((?: *\| *{_WORD}){{0,5}})(?: *(?:==|!=|<=|>=|<|>) *(?:({_CHAIN})|{_CONSTANT}))? *"
_ALONE: Final = re.compile(_EXPRESSION)
_IN_BRACES: Final = re.compile(r"\{\{" + _EXPRESSION + r"\}\}")


def read_lookup(text: str) -> Path | None:
    """Read a plain chain of names; None if the text is anything else."""
    match = _LOOKUP.fullmatch(text) if len(text) <= MAX_LOOKUP_CHARS else None
    if match is None or match[1] in _KEYWORDS:
        return None
    rest = [name or int(index) for name, index in _PART.findall(match[2])]
    return (match[1], *rest)


def read_template(text: str) -> tuple[Path, ...] | None:
    """Return the names that a text with `{{ }}` looks up; None if it has another form."""
    if len(text) > MAX_TEMPLATE_CHARS:
        return None
    between = _IN_BRACES.sub("", text)
    if "{" in between or "}" in between:
        return None
    return _lookups(_IN_BRACES.findall(text))


def read_expression(text: str) -> tuple[Path, ...] | None:
    """Return the names that an expression without braces looks up; None if it has another form."""
    match = _ALONE.fullmatch(text) if len(text) <= MAX_LOOKUP_CHARS else None
    return None if match is None else _lookups([match.groups("")])


def names_read_whole(lookups: tuple[Path, ...]) -> tuple[str, ...]:
    """Return the names that are read without a part of theirs."""
    return tuple(str(path[0]) for path in lookups if len(path) == 1)


def _lookups(expressions: "list[tuple[str, ...]]") -> tuple[Path, ...] | None:
    paths: dict[Path, None] = {}
    for left, filters, right in expressions:
        if not {name.strip() for name in filters.split("|")[1:]} <= FILTERS:
            return None
        for chain in filter(None, (left, right)):
            if chain in _CONSTANTS:
                continue
            path = read_lookup(chain)
            if path is None or len(path) > _MAX_PARTS or not _is_readable(str(path[0])):
                return None
            paths[path] = None
    return tuple(paths)


def _is_readable(name: str) -> bool:
    return name not in _JINJAS_OWN and not name.startswith("_")
