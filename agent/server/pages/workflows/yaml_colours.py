"""Colours for the sources of workflows: keys, comments and templates stand out.

It reads line by line and never fails: unknown text stays plain. It decides nothing but
colours, so that a file with mistakes is shown too.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from markupsafe import Markup, escape

from agent.core.escape import harmless

_LONGEST: Final = 500
"""Longest line that is coloured: the time of a search grows with the square of the length."""
_TEMPLATE: Final = re.compile(r"\{\{.*?\}\}|\{%.*?%\}")
_TOKEN: Final = re.compile(
    r"""(?P<comment>(?:^|(?<=\s))\#.*)
    |(?P<text>(?<![\w])(?:"(?:[^"\\]|\\.)*"|'(?:[^']|'')*'))
    |(?P<template>\{\{.*?\}\}|\{%.*?%\})
    |(?P<key>(?:^|(?<=[\s{,\[]))[\w$][\w$./-]*(?=:(?:\s|$)))""",
    re.VERBOSE,
)
_BLOCK: Final = re.compile(r"(?:^|:\s+|-\s+)[|>][-+0-9]*\s*(?:#.*)?$")
"""The end of a line after which a block of text follows."""


def coloured(lines: Iterable[str]) -> Iterator[Markup]:
    """Yield each line with its parts marked for the style sheet."""
    block_indent: int | None = None
    for line in lines:
        if len(line) > _LONGEST:
            yield _plain(line)
            continue
        indent = len(line) - len(line.lstrip())
        if block_indent is not None and (not line.strip() or indent > block_indent):
            yield _with_templates(line)
            continue
        block_indent = indent if _BLOCK.search(line) else None
        yield _line(line)


def _line(line: str) -> Markup:
    parts: list[Markup] = []
    end = 0
    for found in _TOKEN.finditer(line):
        parts.append(_plain(line[end : found.start()]))
        kind, text = str(found.lastgroup), found.group()
        parts.append(_with_templates(text) if kind == "text" else _marked(kind, text))
        end = found.end()
    return Markup("").join([*parts, _plain(line[end:])])


def _with_templates(text: str) -> Markup:
    parts: list[Markup] = []
    end = 0
    for found in _TEMPLATE.finditer(text):
        parts += [_plain(text[end : found.start()]), _marked("template", found.group())]
        end = found.end()
    return Markup("").join([*parts, _plain(text[end:])])


def _plain(text: str) -> Markup:
    return escape(harmless(text))


def _marked(kind: str, text: str) -> Markup:
    return Markup('<span class="y-{}">{}</span>').format(kind, _plain(text))
