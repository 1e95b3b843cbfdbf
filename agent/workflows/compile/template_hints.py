"""Common mistakes in templates, and the text that was meant.

A corrected text is checked in place of the written one, so that one mistake does not hide another.
"""

import re
from collections.abc import Collection, Iterator
from typing import Final

from agent.workflows.templates.expressions import parse_expression, parse_template
from agent.workflows.templates.limits import TemplateError
from agent.workflows.templates.templates import is_template

_QUOTED: Final = re.compile(r"'[^']*'|\"[^\"]*\"")
_BRACES: Final = re.compile(r"\{\{[^{}]*\}\}|\{%[^{}]*%\}")
_OPERATORS: Final = (
    (re.compile(r"(?<![=!<>])=(?!=)"), "==", "= is written =="),
    (re.compile(r"===+"), "==", "=== is written =="),
    (re.compile(r"&&"), " and ", "&& is written `and`"),
    (re.compile(r"\|\|"), " or ", "|| is written `or`"),
    (re.compile(r"!(?!=)\s*"), "not ", "! is written `not`"),
)
_BLANKS: Final = re.compile(r"(?<=\S) {2,}(?=\S)")
_HYPHENATED: Final = re.compile(
    r"(?<![\w.\]])(?P<start>[A-Za-z_]\w*(?:\.\w+|\[[^\]]*\])*)"
    r"\.(?P<name>[A-Za-z_]\w*(?:-[A-Za-z_]\w*)+)"
)
_NAMED_BY_AUTHOR: Final = ("steps", "inputs", "state")
"""Roots whose members have names of the workflow, which never have a hyphen."""


def corrected(text: str) -> tuple[str, str] | None:
    """Return the probable intention of a text that cannot be parsed, and the rule; None if unknown."""
    rules = []
    for pattern, replacement, rule in _OPERATORS:
        changed = _outside_quotes(text, pattern, replacement)
        if changed != text:
            text = _BLANKS.sub(" ", changed)
            rules.append(rule)
    if not rules or not _is_readable(text):
        return None
    return text, "; ".join(rules)


def hyphenated(text: str, roots: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield names with hyphens, which a template subtracts, with the text that was meant.

    `roots` are the names that a template may read: what follows a hyphen may be one of them.
    """
    for code in _BRACES.findall(text) if is_template(text) else (text,):
        for match in _HYPHENATED.finditer(_QUOTED.sub(_blank, code)):
            start, name = match["start"], match["name"]
            if start.partition(".")[0].partition("[")[0] not in roots:
                continue
            if set(name.split("-")[1:]) & set(roots):
                continue
            is_own = start in _NAMED_BY_AUTHOR
            meant = f"{start}.{name.replace('-', '_')}" if is_own else f"{start}['{name}']"
            yield f"{start}.{name}", meant


def _outside_quotes(text: str, pattern: re.Pattern[str], replacement: str) -> str:
    parts = re.split(f"({_QUOTED.pattern})", text)
    return "".join(
        part if number % 2 else pattern.sub(replacement, part) for number, part in enumerate(parts)
    )


def _blank(match: re.Match[str]) -> str:
    return " " * len(match[0])


def _is_readable(text: str) -> bool:
    try:
        (parse_template if is_template(text) else parse_expression)(text)
    except TemplateError:
        return False
    return True
