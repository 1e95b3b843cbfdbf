"""The lines of a TOML file on which its keys are set."""

import re
from typing import Any, Final

_MARK: Final = re.compile("#\0([0-9]+)\0")


def lines_of(text: str) -> dict[tuple[str, ...], int]:
    """Return the line of every section and key of a valid TOML text, by its path."""
    import tomlkit

    # The parser keeps no line numbers but writes back exactly what it read: a comment put beside an
    # item shows its line.
    document = tomlkit.parse(text)
    marked: list[tuple[tuple[str, ...], int]] = []
    _mark(document, (), marked)
    lines: dict[tuple[str, ...], int] = {}
    for number, line in enumerate(tomlkit.dumps(document).split("\n"), 1):
        for mark in _MARK.finditer(line):
            path, extra_lines = marked[int(mark[1])]
            lines.setdefault(path, number - extra_lines)
    return lines


def _mark(table: Any, path: tuple[str, ...], marked: list[tuple[tuple[str, ...], int]]) -> None:
    for name in table:
        item: Any = table.item(name)
        is_table = hasattr(item, "keys")
        if hasattr(item, "trivia"):
            # A list may go over several lines; the mark is at its end.
            extra_lines = 0 if is_table else item.as_string().count("\n")
            item.trivia.comment_ws = item.trivia.comment_ws or " "
            item.trivia.comment = f"#\0{len(marked)}\0"
            marked.append(((*path, name), extra_lines))
        if is_table and not _is_inline(item):
            _mark(item, (*path, name), marked)


def _is_inline(item: Any) -> bool:
    # The items of an inline table share its line, and cannot have comments.
    return type(item).__name__ == "InlineTable"


def line_of(lines: dict[tuple[str, ...], int], path: list[str]) -> int:
    """Return the line of a key, or of the nearest section around it that has one."""
    for length in range(len(path), 0, -1):
        if tuple(path[:length]) in lines:
            return lines[tuple(path[:length])]
    return 1
