"""The results as tables: what was measured, and what it means."""

from collections.abc import Sequence
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from bench.rows import FIGURES, WHAT, Row, find
from bench.targets import Comparison

_WIDTH: Final = 150
_FIRST: Final = ("workload", "store", "engine")
_COUNTED: Final = ("workers", "waiting", "running", "steps")
_MARKS: Final = {True: "met", False: "missed", None: ""}

MEASURED: Final = (*_FIRST, "case", *(name.replace("_per_", "/") for name in FIGURES), "ours is",
                   "others")  # fmt: skip
COMPARED: Final = ("what", "value", "target", "")


def show(rows: list[Row], comparisons: list[Comparison]) -> None:
    """Print both tables."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=_WIDTH)
    titled = (
        ("measured (medians)", MEASURED, measured(rows), len(_FIRST) + 1),
        ("compared", COMPARED, compared(comparisons), 1),
    )
    for title, names, lines, left in titled:
        if lines:
            console.print(_table(title, names, lines, left))


def _table(title: str, names: Sequence[str], lines: list[list[str]], left: int) -> Table:
    """Return a table whose first columns are words and whose others are numbers."""
    table = Table(title=title, title_justify="left")
    for column, name in enumerate(names):
        table.add_column(name, justify="left" if column < left else "right")
    for line in lines:
        table.add_row(*line)
    return table


def measured(rows: list[Row]) -> list[list[str]]:
    """Return a line for each row, in the order of `MEASURED`."""
    lines = []
    for row in rows:
        others = [name for name in row if name not in (*WHAT, *FIGURES) and row[name] is not None]
        lines.append(
            [
                *(text(row[name]) for name in _FIRST),
                case(row),
                *(text(row[name]) for name in FIGURES),
                _ours_is(row, rows),
                ", ".join(f"{name.replace('_per_', '/')} {text(row[name])}" for name in others),
            ]
        )
    return lines


def compared(comparisons: list[Comparison]) -> list[list[str]]:
    """Return a line for each comparison, in the order of `COMPARED`."""
    return [
        [each.name, f"{each.value:.3g}", each.limit, _MARKS[each.is_met]] for each in comparisons
    ]


def case(row: Row) -> str:
    """Return what tells a row from others of its workload, engine and store."""
    parts = [row.get("shape"), row.get("case")]
    if row["in_flight"] is not None:
        parts.append(f"{row['in_flight']} in flight")
    parts += [f"{row[name]:,} {name}" for name in _COUNTED if row.get(name) is not None]
    return " ".join(str(part) for part in parts if part is not None)


def text(value: Any) -> str:
    """Return a value of a row as a person reads it."""
    if value is None:
        return ""
    if not isinstance(value, int | float):
        return str(value)
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _ours_is(row: Row, rows: list[Row]) -> str:
    """Say how many times as many steps a second ours does, or how much of a lower bound."""
    what = {name: row[name] for name in ("workload", "store", "in_flight")}
    ours = find(rows, engine="agent", **what)
    if row["workload"] != "W" or row["engine"] == "agent" or ours is None:
        return ""
    ratio = ours["steps_per_s"] / row["steps_per_s"]
    return f"{ratio:.3g}×"
