"""The margin of a list of steps: lanes that show the dependencies from each row to later ones.

It is the drawing of the terminal (`agent.workflows.draw`) with curves. Each row is drawn by itself, as
high as it is: lanes that go on below the row's head are stretched by the browser.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from agent.server.pages.drawings.layered_graph import Parents, children_of

MAX_LANES: Final = 8
LANE_WIDTH: Final = 13.0
LEFT: Final = 9.0
HEAD_HEIGHT: Final = 44.0
"""The height of a row that is not opened: the dot stands in its middle."""
_MIDDLE: Final = HEAD_HEIGHT / 2
_BEND: Final = 10.0


@dataclass(frozen=True, slots=True)
class LaneRow:
    """The margin of one row: a dot, curves that reach and leave it, and lanes that go on."""

    dot_x: float
    curves: tuple[str, ...]
    """Paths within the row's head."""
    ongoing: tuple[float, ...]
    """Where lanes go on below the head, to the row's end."""


@dataclass(frozen=True, slots=True)
class LaneDrawing:
    """The margins of all rows; without lanes where there would be too many."""

    lane_count: int
    rows: list[LaneRow]
    has_lanes: bool

    @property
    def width(self) -> float:
        """The width of the margin."""
        return 2 * LEFT + (self.lane_count - 1) * LANE_WIDTH


def draw_lanes(parents: Parents) -> LaneDrawing:
    """Draw the margin of rows that are in topological order.

    `parents` names for each row the earlier rows that it depends on.
    """
    children = children_of(parents)
    lanes: list[int | None] = []
    rows: list[LaneRow] = []
    most = 1
    for number in range(len(parents)):
        before = list(lanes)
        own = [lane for lane, target in enumerate(lanes) if target == number]
        if not own:
            own = [_free_lane(lanes, 0)]
        for lane in own:
            lanes[lane] = None
        places = [own[0]]
        for child in children[number]:
            lane = own[0] if lanes[own[0]] is None else _free_lane(lanes, own[0])
            lanes[lane] = child
            places.append(lane)
        most = max(most, len(lanes))
        if most > MAX_LANES:
            return _dots(len(parents))
        rows.append(_row(number, own[0], before, lanes, places[1:]))
        while lanes and lanes[-1] is None:
            lanes.pop()
    return LaneDrawing(most, rows, has_lanes=True)


def _dots(count: int) -> LaneDrawing:
    return LaneDrawing(1, [LaneRow(LEFT, (), ())] * count, has_lanes=False)


def _free_lane(lanes: list[int | None], after: int) -> int:
    """Find an empty lane to the right of one, or make it."""
    for lane in range(after, len(lanes)):
        if lanes[lane] is None:
            return lane
    lanes.append(None)
    return len(lanes) - 1


def _row(
    number: int,
    own: int,
    before: Sequence[int | None],
    after: Sequence[int | None],
    leaving: Sequence[int],
) -> LaneRow:
    curves = []
    for lane, target in enumerate(before):
        if target == number:
            curves.append(_joining(lane, own))
        elif target is not None:
            curves.append(f"M{_x(lane):g} 0V{HEAD_HEIGHT:g}")
    curves += [_leaving(own, lane) for lane in leaving]
    ongoing = tuple(_x(lane) for lane, target in enumerate(after) if target is not None)
    return LaneRow(_x(own), tuple(curves), ongoing)


def _x(lane: int) -> float:
    return LEFT + lane * LANE_WIDTH


def _joining(lane: int, own: int) -> str:
    """Return the path from a lane at the top of a row to its dot."""
    start, end = _x(lane), _x(own)
    if lane == own:
        return f"M{start:g} 0V{_MIDDLE:g}"
    turn = _BEND / 2
    return f"M{start:g} 0V{turn:g}C{start:g} {_BEND:g} {end:g} {turn:g} {end:g} {_MIDDLE:g}"


def _leaving(own: int, lane: int) -> str:
    """Return the path from a row's dot to a lane at the end of its head."""
    start, end = _x(own), _x(lane)
    if lane == own:
        return f"M{start:g} {_MIDDLE:g}V{HEAD_HEIGHT:g}"
    bend = HEAD_HEIGHT - _BEND / 2
    return f"M{start:g} {_MIDDLE:g}C{start:g} {bend:g} {end:g} {_MIDDLE + _BEND:g} {end:g} {HEAD_HEIGHT:g}"
