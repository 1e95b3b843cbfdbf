"""A long text in parts: cut between paragraphs, else lines, else words; code stays whole where it can.

The source is cut, so each part is Markdown by itself. A piece of code that must be cut is closed and
opened again.
"""

import re
from collections.abc import Callable, Iterator
from typing import Final

MAX_PARTS: Final = 5
NOTICE: Final = "\n\n… cut here: the whole text is attached"
_FENCE: Final = re.compile(r"^ {0,3}(`{3,}|~{3,})([^`\n]*)$")

Measure = Callable[[str], int]
"""Returns how much of a channel's limit a piece of Markdown takes."""


def split(text: str, limit: int, measure: Measure) -> tuple[list[str], str | None]:
    """Return the parts of a text; of one that is too long its beginning, and the whole for a file."""
    if len(text) <= limit and measure(text) <= limit:
        return [text], None
    parts = list(_parts(text, limit, measure))
    if len(parts) <= MAX_PARTS:
        return parts, None
    (first, *_) = _parts(text, limit - len(NOTICE), measure)
    return [first + NOTICE], text


def _parts(text: str, limit: int, measure: Measure) -> Iterator[str]:
    """Yield at most one part more than allowed: a very long text is not read to its end."""
    current, length, count = "", 0, 0
    for block in _source_blocks(text):
        for piece in _pieces(block, limit, measure):
            size = measure(piece) + 2
            if current and length + size > limit:
                yield current
                current, length, count = "", 0, count + 1
                if count > MAX_PARTS:
                    return
            current = f"{current}\n\n{piece}" if current else piece
            length += size
    if current:
        yield current


def _source_blocks(text: str) -> Iterator[str]:
    """Yield paragraphs and whole pieces of fenced code."""
    lines: list[str] = []
    fence = ""
    for line in text.split("\n"):
        match = _FENCE.match(line)
        if fence:
            lines.append(line)
            if match and match[1].startswith(fence) and not match[2].strip():
                yield "\n".join(lines)
                lines, fence = [], ""
        elif match:
            if lines:
                yield "\n".join(lines)
            lines, fence = [line], match[1]
        elif line.strip():
            lines.append(line)
        elif lines:
            yield "\n".join(lines)
            lines = []
    if lines:
        yield "\n".join(lines)


def _pieces(block: str, limit: int, measure: Measure) -> Iterator[str]:
    """Yield a block, in pieces if it is too long by itself."""
    if len(block) <= 2 * limit and measure(block) + 2 <= limit:
        yield block
        return
    first, *rest = block.split("\n")
    match = _FENCE.match(first)
    if match:
        closing = match[1]
        inner = rest[:-1] if rest and rest[-1].strip() == closing else rest
        # Room for the two lines of the fence.
        for lines in _grouped(inner, limit - len(first) - len(closing) - 4, len):
            yield f"{first}\n{lines}\n{closing}"
        return
    yield from _grouped([first, *rest], limit - 2, lambda piece: max(len(piece), measure(piece)))


def _grouped(lines: list[str], limit: int, measure: Measure) -> Iterator[str]:
    """Yield lines in groups; a line that is too long is cut between words, else anywhere."""
    current, length = "", 0
    for line in lines:
        for piece in _cut(line, limit, measure):
            size = measure(piece) + 1
            if current and length + size > limit:
                yield current
                current, length = "", 0
            current = f"{current}\n{piece}" if current else piece
            length += size
    if current:
        yield current


def _cut(line: str, limit: int, measure: Measure) -> Iterator[str]:
    # Escapes and marks can make a piece longer than its source: half of the limit is always enough.
    step = limit if measure(line[:limit]) < limit else max(1, limit // 2)
    while len(line) > step:
        at = line.rfind(" ", step // 2, step)
        at = step if at < 0 else at
        yield line[:at]
        line = line[at:].lstrip(" ")
    yield line
