"""Problems of workflow files, written for people and for programs."""

import heapq
from collections.abc import Iterable, Mapping, Sequence
from operator import eq
from typing import Any, TypeVar

from agent.core.escape import is_hidden
from agent.core.quick_classes.quick_dataclasses import dataclass, values_of

_MAX_SHOWN_COLUMNS = 160
_MAX_CHARS = 500
_MAX_SUGGESTIONS = 100
_MAX_COMPARED = 20
_MAX_PROBLEMS = 1000

TextOrNone = TypeVar("TextOrNone", str, str | None)


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem: its place, its message, and a hint. Lines count from 1."""

    file: str
    line: int | None
    column: int | None
    key: str
    message: str
    hint: str | None = None

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        key = f" {self.key}:" if self.key else ""
        return _printable(f"{place}:{key} {self.message}{_ending(self.message, self.hint)}")

    def document(self) -> dict[str, Any]:
        """Return the problem as `--json` prints it."""
        return values_of(self)


class WorkflowError(ValueError):
    """A workflow has problems; the first thousand are in `problems`, in the order of their lines.

    `steps` are those that could be compiled: remarks about them are not hidden by the problems.
    `name` is the workflow's name where the file has one.
    """

    def __init__(
        self, problems: Iterable[Problem], steps: Sequence[Any] = (), name: str | None = None
    ) -> None:
        self.steps = tuple(steps)
        self.name = name
        found = sorted(
            problems, key=lambda problem: (problem.file, problem.line or 0, problem.column or 0)
        )
        self.problems = found[:_MAX_PROBLEMS]
        if more := len(found) - len(self.problems):
            text = f"there are {more:,} more problems"
            self.problems.append(Problem(found[-1].file, None, None, "", text))
        super().__init__("\n".join(map(str, self.problems)))


def show(problems: Sequence[Problem], texts: Mapping[str, str] | None = None) -> str:
    """Write problems for a terminal, each with its source line and a caret under the place."""
    blocks = []
    lines_of = {file: text.splitlines() for file, text in (texts or {}).items()}
    for problem in problems:
        block = [str(problem)]
        lines = lines_of.get(problem.file, [])
        if problem.line is not None and 0 < problem.line <= len(lines):
            block += _excerpt(lines[problem.line - 1], problem.line, problem.column)
        blocks.append("\n".join(block))
    return "\n".join(blocks)


def did_you_mean(word: object, known: Iterable[str]) -> str | None:
    """Return the nearest known word as a hint, or None."""
    # Only messages need it.
    from difflib import get_close_matches

    close = get_close_matches(str(word)[:100], list(known), n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}?" if close else None


class Suggestions:
    """Suggests the nearest of many words, for the first hundred problems: each search takes time."""

    def __init__(self, words: Iterable[str]) -> None:
        self._words = list(words)
        self._left = _MAX_SUGGESTIONS

    def near(self, name: str, but: str | None = None) -> str | None:
        """Return the nearest word as a hint, or None."""
        self._left -= 1
        if self._left < 0:
            return None
        nearest = heapq.nlargest(_MAX_COMPARED, self._words, key=lambda word: _alike(name, word))
        return did_you_mean(name, [word for word in nearest if word != but])


def _alike(one: str, other: str) -> int:
    """Measure cheaply how alike two words are: `difflib` is slow on thousands of them."""
    shared: int = sum(map(eq, one, other)) + sum(map(eq, reversed(one), reversed(other)))
    return shared


def cut(text: TextOrNone) -> TextOrNone:
    """Shorten a text that is too long to read."""
    return f"{text[:_MAX_CHARS]}..." if text is not None and len(text) > _MAX_CHARS else text


def write_key(path: Sequence[str | int]) -> str:
    """Write a path into a file as people do: `steps.fetch.depends_on[0]`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.lstrip(".")


def _printable(text: str) -> str:
    """Write control characters as escapes: a file's text must not steer the terminal."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(ascii(c)[1:-1] if not c.isprintable() or is_hidden(c) else c for c in text)


def _excerpt(line: str, number: int, column: int | None) -> list[str]:
    margin = len(str(number))
    shown = _printable(line.expandtabs(1)[:_MAX_SHOWN_COLUMNS])
    excerpt = [f"  {number} | {shown}"]
    if column is not None and column <= len(shown) + 1:
        excerpt.append(f"  {' ' * margin} | {' ' * (column - 1)}^")
    return excerpt


def _ending(message: str, hint: str | None) -> str:
    if hint is None:
        return ""
    return f" {hint}" if message.endswith((".", "?", "!")) else f"; {hint}"
