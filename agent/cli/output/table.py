"""Tables that fit the terminal: a row is one line, and long cells are clipped.

Output that is not a terminal is never clipped: programs and files get whole values.
"""

import unicodedata
from collections.abc import Iterable, Sequence
from typing import Final

_GAP: Final = "  "
_SHORTEST: Final = 8
"""Columns narrower than this are not clipped: ids, statuses, numbers."""
_ROOM: Final = 12
"""The least cells of a column that may be left out."""
_READABLE: Final = 24
"""The least cells of the other columns, where they have more to say, beside one that may be left out."""

Cell = str
Row = Sequence[Cell]


def lines(
    columns: Sequence[str],
    rows: Iterable[Row],
    *,
    width: int | None,
    optional: frozenset[int] = frozenset(),
) -> list[list[Cell]]:
    """Return the heading and the rows as cells, padded and clipped so that a line fits.

    Without a width nothing is clipped. The widest columns are clipped first. Optional columns are
    left out where they, or others because of them, would be too narrow, and where all their cells are
    empty.
    """
    table = [list(columns), *map(list, rows)]
    shown = [
        index
        for index in range(len(columns))
        if index not in optional or any(row[index] for row in table[1:])
    ]
    natural = {index: max(cell_width(row[index]) for row in table) for index in shown}
    widths = _fitted(natural, width)
    for index in sorted(set(shown) & optional, reverse=True):
        takes_room = any(
            cells < min(natural[other], _READABLE)
            for other, cells in widths.items()
            if other not in optional
        )
        if takes_room or widths[index] < min(natural[index], _ROOM):
            del natural[index]
            widths = _fitted(natural, width)
    return [
        [
            _padded(clipped(row[index], cells), cells if index != max(widths) else 0)
            for index, cells in widths.items()
        ]
        for row in table
    ]


def joined(cells: Sequence[Cell]) -> str:
    """Return the cells of a line as text."""
    return _GAP.join(cells).rstrip()


def clipped(text: str, cells: int) -> str:
    """Return a text that takes no more cells of a terminal, with an ellipsis where it was cut."""
    if cell_width(text) <= cells:
        return text
    room, kept = cells - 1, []
    for character in text:
        room -= cell_width(character)
        if room < 0:
            break
        kept.append(character)
    return "".join(kept) + "…" if cells > 0 else ""


def cell_width(text: str) -> int:
    """Return how many cells of a terminal a text takes."""
    if text.isascii():
        return len(text)
    return sum(_character_width(character) for character in text)


def _character_width(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _fitted(natural: dict[int, int], width: int | None) -> dict[int, int]:
    """Return the widths of columns, the widest shortened until a line fits."""
    if width is None:
        return dict(natural)
    room = width - len(_GAP) * (len(natural) - 1)
    longest = max(natural.values(), default=0)
    while (
        longest > _SHORTEST
        and sum(min(own_width, longest) for own_width in natural.values()) > room
    ):
        longest -= 1
    widths = {index: min(own_width, longest) for index, own_width in natural.items()}
    # The next column gets the cells that are left, since one step would be too many for all.
    for index, own_width in natural.items():
        spare = room - sum(widths.values())
        if spare > 0 and own_width > widths[index]:
            widths[index] = min(own_width, widths[index] + spare)
    return widths


def _padded(text: str, cells: int) -> str:
    return text + " " * (cells - cell_width(text))
