"""Bar charts as numbers in per cent: days as columns, shares as bars."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, log10
from typing import Final

_COLUMN_GAP: Final = 0.25
"""The part of a column's room that stays empty."""
_MIN_HEIGHT: Final = 1.0


@dataclass(frozen=True, slots=True)
class Column:
    """One column: positions and sizes are per cent of the chart."""

    x: float
    y: float
    width: float
    height: float
    label: str
    value: float


@dataclass(frozen=True, slots=True)
class ColumnChart:
    """Columns on one scale from zero."""

    columns: list[Column]
    top: float
    """The value at the upper edge."""
    limit_y: float | None
    """Where the line of the limit stands, if it is within the scale."""


def column_chart(values: Sequence[tuple[str, float]], limit: float | None = None) -> ColumnChart:
    """Draw labelled values as columns; a limit widens the scale up to twice the largest value."""
    largest = max((value for _, value in values), default=0.0)
    shown_limit = limit if limit is not None and limit <= 2 * largest else None
    top = round_up(max(largest, shown_limit or 0.0))
    room = 100.0 / max(len(values), 1)
    columns = []
    for number, (label, value) in enumerate(values):
        height = 100.0 * value / top if top else 0.0
        if value > 0:
            height = max(height, _MIN_HEIGHT)
        columns.append(
            Column(
                x=round((number + _COLUMN_GAP / 2) * room, 3),
                y=round(100.0 - height, 2),
                width=round(room * (1 - _COLUMN_GAP), 3),
                height=round(height, 2),
                label=label,
                value=value,
            )
        )
    limit_y = None if shown_limit is None else round(100.0 - 100.0 * shown_limit / top, 2)
    return ColumnChart(columns, top, limit_y)


def round_up(value: float) -> float:
    """Return the next larger of 1, 2, 2.5 and 5 times a power of ten."""
    if value <= 0:
        return 0.0
    power = 10.0 ** floor(log10(value))
    for factor in (1.0, 2.0, 2.5, 5.0, 10.0):
        if value <= factor * power * (1 + 1e-9):
            return factor * power
    return ceil(value)


def shares(values: Sequence[float]) -> list[float]:
    """Return each value in per cent of the largest."""
    largest = max(values, default=0.0)
    return [round(100.0 * value / largest, 2) if largest else 0.0 for value in values]
