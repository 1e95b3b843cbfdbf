"""Charts: columns on one scale, inside their chart."""

from hypothesis import given, settings
from hypothesis import strategies as st

from agent.server.pages.drawings.charts import column_chart, round_up, shares


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0, 1e9), max_size=40), st.none() | st.floats(0.01, 1e9))
def test_columns_stay_inside(values: list[float], limit: float | None) -> None:
    """No column leaves the chart or touches its neighbour, and larger values are higher."""
    chart = column_chart([(str(number), value) for number, value in enumerate(values)], limit)
    for column in chart.columns:
        assert 0 <= column.y <= 100
        assert column.height <= 100
        assert column.x + column.width <= 100.001
    for left, right in zip(chart.columns, chart.columns[1:], strict=False):
        assert left.x + left.width <= right.x
        if left.value < right.value:
            assert left.height <= right.height
    if chart.limit_y is not None:
        assert 0 <= chart.limit_y <= 100


def test_the_scale_ends_at_a_round_number() -> None:
    """The value at the upper edge can be read."""
    assert [round_up(value) for value in (0, 0.03, 1, 1.3, 23, 740)] == [0, 0.05, 1, 2, 25, 1000]


def test_a_limit_far_above_all_values_is_left_out() -> None:
    """It would press the columns to the ground."""
    assert column_chart([("Mon", 1.0)], 50.0).limit_y is None
    assert column_chart([("Mon", 1.0)], 1.5).limit_y == 25.0


def test_shares_are_relative_to_the_largest() -> None:
    """The largest bar is full, and nothing is drawn where there is nothing."""
    assert shares([4, 2, 1]) == [100, 50, 25]
    assert shares([0, 0]) == [0, 0]
