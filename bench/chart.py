"""The figures as a picture: durable steps a second of every engine, as bars, in SVG."""

from collections.abc import Iterator
from html import escape
from typing import Final

from bench.options import ENGINES, STORES
from bench.rows import Row, find

_IN_FLIGHT: Final = 50
_WIDTH: Final = 760
_LEFT: Final = 130
_RIGHT: Final = 90
_BAR: Final = 20
_STEP: Final = 28
_TOP: Final = 46
_OURS: Final = "#1f6f5c"
_BOUND: Final = "#c9c9c9"
_PEER: Final = "#7d8fb3"
_NAMES: Final = {"raw": "lower bound", "agent": "agent (ours)"}
_TITLES: Final = {"sqlite": "SQLite", "postgres": "PostgreSQL, one worker"}


def draw(rows: list[Row]) -> str:
    """Return the picture, one panel a store; no panel where nothing was measured."""
    parts: list[str] = []
    height = 0
    for store in STORES:
        bars = _bars(rows, store)
        if bars:
            title = f"{_TITLES[store]}: durable steps a second, {_IN_FLIGHT} tasks in flight"
            parts += _panel(title, bars, height)
            height += _TOP + _STEP * len(bars) + 10
    style = "font-family:system-ui,sans-serif;font-size:13px"
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}"'
        f' width="{_WIDTH}" height="{height}" style="{style}" role="img">'
    )
    background = f'<rect width="{_WIDTH}" height="{height}" fill="#fff"/>'
    return "\n".join((head, background, *parts, "</svg>")) + "\n"


def _bars(rows: list[Row], store: str) -> list[tuple[str, float]]:
    what = {"workload": "W", "store": store, "in_flight": _IN_FLIGHT}
    found = [(name, row) for name in ENGINES if (row := find(rows, engine=name, **what))]
    bars = [(name, float(row["steps_per_s"])) for name, row in found]
    return sorted(bars, key=lambda bar: -bar[1])


def _panel(title: str, bars: list[tuple[str, float]], top: int) -> Iterator[str]:
    most = max(value for _, value in bars)
    yield f'<text x="12" y="{top + 26}" font-weight="600">{escape(title)}</text>'
    for index, (engine, value) in enumerate(bars):
        y = top + _TOP + index * _STEP
        width = max(1.0, value / most * (_WIDTH - _LEFT - _RIGHT))
        colour = {"agent": _OURS, "raw": _BOUND}.get(engine, _PEER)
        name = _NAMES.get(engine, engine)
        middle = y + _BAR - 6
        yield f'<text x="{_LEFT - 8}" y="{middle}" text-anchor="end">{escape(name)}</text>'
        yield f'<rect x="{_LEFT}" y="{y}" width="{width:.1f}" height="{_BAR}" fill="{colour}"/>'
        yield f'<text x="{_LEFT + width + 6:.1f}" y="{middle}">{value:,.0f}</text>'
