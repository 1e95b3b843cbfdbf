"""The margin of a list of steps."""

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from agent.server.pages.drawings.lanes import HEAD_HEIGHT, MAX_LANES, draw_lanes


@st.composite
def parents(draw: st.DrawFn) -> list[list[int]]:
    """Draw rows that depend on earlier ones."""
    count = draw(st.integers(1, 20))
    return [
        sorted(draw(st.sets(st.integers(0, number - 1), max_size=3))) if number else []
        for number in range(count)
    ]


@settings(max_examples=50, deadline=None)
@given(parents())
def test_each_dependency_reaches_its_row(found: list[list[int]]) -> None:
    """A row is reached by as many lanes as it has dependencies, and left by one per dependent."""
    drawn = draw_lanes(found)
    assert len(drawn.rows) == len(found)
    if not drawn.has_lanes:
        return
    for number, row in enumerate(drawn.rows):
        middle = f"{HEAD_HEIGHT / 2:g}"
        reaching = [path for path in row.curves if path.endswith((f"V{middle}", f" {middle}"))]
        leaving = [path for path in row.curves if path.startswith("M") and f" {middle}" in path[:9]]
        assert len(reaching) == len(found[number])
        assert len(leaving) == sum(number in each for each in found)


@settings(max_examples=50, deadline=None)
@given(parents())
def test_lanes_go_on_from_row_to_row(found: list[list[int]]) -> None:
    """Where a lane leaves one row it enters the next."""
    rows = draw_lanes(found).rows
    for row, following in itertools.pairwise(rows):
        entering = {path.split(" 0")[0] for path in following.curves if " 0V" in path}
        assert {f"M{x:g}" for x in row.ongoing} == entering
    assert rows[-1].ongoing == ()


def test_a_graph_with_too_many_lanes_has_dots() -> None:
    """Nine branches at once are shown as a plain list."""
    count = MAX_LANES + 1
    drawn = draw_lanes([[], *[[0]] * count, list(range(1, count + 1))])
    assert not drawn.has_lanes
    assert all(row.curves == () for row in drawn.rows)
