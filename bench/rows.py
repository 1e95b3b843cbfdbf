"""Rows of results: what was measured, and the medians over the rounds."""

from statistics import median
from typing import Any, Final

Row = dict[str, Any]

WHAT: Final = (
    "engine", "store", "workload", "in_flight", "workers", "shape", "case", "waiting", "running",
    "steps",
)  # fmt: skip
"""What tells two measures apart; everything else in a row is a figure."""
FIGURES: Final = ("steps_per_s", "p50_ms", "write_tx_per_task", "cpu_ms_per_task", "rss_mb")


def row(
    engine: str, store: str | None, workload: str, *, in_flight: int | None = None, **given: Any
) -> Row:
    """Return a row; what every row has and does not fit this measure is null."""
    common = dict.fromkeys(FIGURES)
    what = {"engine": engine, "store": store, "workload": workload, "in_flight": in_flight}
    return what | common | given


def medians(rows: list[Row]) -> list[Row]:
    """Return one row for each measure, in their first order, with the medians of its figures."""
    same: dict[tuple[Any, ...], list[Row]] = {}
    for each in rows:
        same.setdefault(tuple(each.get(name) for name in WHAT), []).append(each)
    return [{name: _middle(name, group) for name in group[0]} for group in same.values()]


def _middle(name: str, group: list[Row]) -> Any:
    first = group[0][name]
    if name in WHAT or first is None:
        return first
    if isinstance(first, dict):
        return {key: _middle(key, [each[name] for each in group]) for key in first}
    return round(median(each[name] for each in group), 4)


def find(rows: list[Row], **what: Any) -> Row | None:
    """Return the row that is about this, if it was measured."""
    return next((row for row in rows if what.items() <= row.items()), None)
