"""The code blocks of a documentation page, and what each asks of the test that runs them."""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]

_NO_RUN = re.compile(r"<!-- no-run: (.+?) -->")
_EXIT = re.compile(r"<!-- exit: (\d+) -->")
_FENCE = re.compile(r"^(```|~~~)(\w*)(?: title=\"([^\"]+)\")?\s*$")
_INDENTED = re.compile(r"^(?: {4}|\t)\S")
_LIST_ITEM = re.compile(r"^(?:[-*+]|\d+\.) ")


@dataclass(frozen=True)
class Block:
    """One fenced block: its language, the file name in its title, its text and its markers."""

    page: str
    line: int
    language: str
    title: str | None
    text: str
    no_run: str | None = None
    exit_code: int | None = None

    @property
    def place(self) -> str:
        """Page and line, as an error names them."""
        return f"{self.page}:{self.line}"


def pages() -> list[Path]:
    """Return every page that users read: the README and everything below docs."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def name_of(page: Path) -> str:
    """Return a page's path below the root."""
    return str(page.relative_to(ROOT))


def blocks_of(page: Path) -> list[Block]:
    """Return the fenced blocks of a page, in their order."""
    return parse(name_of(page), page.read_text(encoding="utf-8"))


def parse(name: str, text: str) -> list[Block]:
    """Return the fenced blocks of a page's text. A marker is the comment line before its fence."""
    found: list[Block] = []
    lines = text.splitlines()
    number = 0
    while number < len(lines):
        opening = _FENCE.match(lines[number])
        if opening is None:
            number += 1
            continue
        end = next(
            (index for index in range(number + 1, len(lines)) if lines[index] == opening[1]), None
        )
        if end is None:
            raise ValueError(f"{name}:{number + 1}: the block is not closed")
        marker = lines[number - 1] if number else ""
        reason, code = _NO_RUN.fullmatch(marker), _EXIT.fullmatch(marker)
        found.append(
            Block(
                name,
                number + 1,
                opening[2],
                opening[3],
                "".join(f"{line}\n" for line in lines[number + 1 : end]),
                reason[1] if reason else None,
                int(code[1]) if code else None,
            )
        )
        number = end + 1
    return found


def indented_lines(page: Path) -> list[int]:
    """Return the lines that Markdown reads as a code block without a fence."""
    found, fence, is_list = [], "", False
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith(("```", "~~~")) and fence in ("", line):
            fence = "" if fence else line[:3]
        elif _LIST_ITEM.match(line):
            is_list = True
        elif line and not line.startswith((" ", "\t")):
            is_list = False
        elif not fence and not is_list and _INDENTED.match(line):
            found.append(number)
    return found
