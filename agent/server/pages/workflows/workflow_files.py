"""Workflow files that cannot be used, with the lines that are wrong."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from markupsafe import Markup

from agent.server.pages.workflows.yaml_colours import coloured
from agent.workflows.diagnostics import Problem, WorkflowError
from agent.workflows.directory import Entry
from agent.workflows.loader import read_content

_MOST_FILES: Final = 20
_MOST_LINES: Final = 3000
_MOST_COLOURED: Final = 500
"""Marks make a page larger; a source of this length was written by a program."""


@dataclass(frozen=True, slots=True)
class SourceLine:
    """One line of a source; `mark` is why it stands out: bad, mark, new, old or nothing."""

    text: str | Markup
    mark: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class BrokenFile:
    """A file with its problems, and its lines with them."""

    path: str
    name: str
    problems: tuple[Problem, ...]
    lines: list[SourceLine]


def broken_files(entries: Iterable[Entry]) -> list[BrokenFile]:
    """Return the files that have problems."""
    broken = [entry for entry in entries if entry.problems]
    return [
        BrokenFile(
            str(entry.path),
            entry.path.name,
            entry.problems,
            source_lines(_text(entry.path), problems=entry.problems),
        )
        for entry in broken[:_MOST_FILES]
    ]


def source_lines(text: str, problems: tuple[Problem, ...] = ()) -> list[SourceLine]:
    """Return the lines of a source: problems are marked bad, and so is the block of triggers."""
    wrong: dict[int, list[str]] = {}
    for problem in problems:
        if problem.line is not None:
            wrong.setdefault(problem.line, []).append(problem.message)
    lines = text.splitlines()[:_MOST_LINES]
    triggers = _trigger_lines(lines)
    shown = [*coloured(lines[:_MOST_COLOURED]), *lines[_MOST_COLOURED:]]
    return [
        SourceLine(
            line,
            "bad" if number in wrong else "mark" if number in triggers else "",
            "; ".join(wrong.get(number, ())),
        )
        for number, line in enumerate(shown, 1)
    ]


def _trigger_lines(lines: list[str]) -> set[int]:
    """Return the numbers of the lines of `on:`, the triggers of the workflow."""
    found: set[int] = set()
    is_inside = False
    for number, line in enumerate(lines, 1):
        is_top = bool(line) and not line[0].isspace() and not line.startswith("#")
        if is_top:
            is_inside = line.startswith("on:")
        if is_inside and line.strip():
            found.add(number)
    return found


def _text(path: Path) -> str:
    try:
        return read_content(path).decode("utf-8", errors="replace")
    except WorkflowError:
        return ""
