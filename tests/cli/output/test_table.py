"""Tables: one line a row, clipped to the terminal, whole elsewhere."""

from collections.abc import Sequence

import pytest

from agent.cli.output import table

COLUMNS = ("task", "workflow", "input", "remarks")
ROWS = [
    ("4fd77932", "hello v1", "name=world", ""),
    (
        "a133d5a6",
        "nightly-report v12",
        "since=2026-11-01, to=all",
        "the command ended: " + "x" * 90,
    ),
]


def _text(width: int | None, rows: Sequence[tuple[str, ...]] = ROWS) -> list[str]:
    return [
        table.joined(line)
        for line in table.lines(COLUMNS, rows, width=width, optional=frozenset({2}))
    ]


def test_a_pipe_gets_whole_cells() -> None:
    """Nothing is clipped without a width."""
    assert _text(None)[2].endswith("x" * 90)


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
def test_a_line_fits_and_uses_the_width(width: int) -> None:
    """Long cells end in an ellipsis; ids stay whole."""
    heading, first, second = _text(width)
    assert max(map(table.cell_width, (heading, first, second))) <= width
    assert second.startswith("a133d5a6")
    if width < 160:
        assert second.endswith("…")
        assert table.cell_width(second) == width, "no cell is wasted"


def test_an_optional_column_needs_room() -> None:
    """The input is left out at 40 columns, and where no task has one."""
    assert "input" in _text(80)[0]
    assert "input" not in _text(40)[0]
    assert "input" not in _text(70)[0], "it would take the room of the remarks"
    assert "input" in _text(70, ROWS[:1])[0]
    assert "input" not in _text(None, [("4fd77932", "hello v1", "", "")])[0]


def test_wide_characters_take_two_cells() -> None:
    """A table of them is aligned, and clipped by cells."""
    assert table.cell_width("日本") == 4
    assert table.cell_width("e\u0301") == 1
    assert table.clipped("日本語", 5) == "日本…"
    assert table.clipped("日本語", 4) == "日…"
    assert table.clipped("abc", 3) == "abc"
