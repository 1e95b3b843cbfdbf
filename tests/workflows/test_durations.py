"""Durations: as people write them, and nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.workflows.durations import MAX_SECONDS, format_duration, parse_duration
from tests.support.hypothesis_profile import PATIENT


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0s", 0), ("500ms", 0.5), ("90s", 90), ("1h30m", 5400), ("2d", 172_800), ("1w", 604_800),
     ("1.5h", 5400), (" 5m ", 300), ("1d2h3m4s5ms", 93_784.005), ("365d", MAX_SECONDS)],
)  # fmt: skip
def test_a_duration_is_numbers_with_units(text: str, seconds: float) -> None:
    """Every unit, several together, and fractions."""
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "value",
    ["", " ", "5", "s", "5 m", "-5s", "5x", "1m1h", "1s1s", "1e3s", "٣s", "366d", "9" * 50 + "s",
     "1h 30m", "5S", "soon", "1.s", ".5s", 5, 0, 1.5, True, False, None, [], {}],
)  # fmt: skip
def test_anything_else_is_refused_with_a_suggestion(value: object) -> None:
    """Numbers without units, negative ones, booleans, and what is longer than a year."""
    with pytest.raises(ValueError, match=r"duration|units|year"):
        parse_duration(value)


@PATIENT
@given(st.integers(0, int(MAX_SECONDS * 1000)))
def test_a_formatted_duration_is_parsed_as_the_same_time(milliseconds: int) -> None:
    """`format_duration` writes what `parse_duration` reads as the same time."""
    seconds = milliseconds / 1000
    assert parse_duration(format_duration(seconds)) == pytest.approx(seconds, abs=1e-6)


@PATIENT
@given(st.text())
def test_any_text_is_a_duration_or_refused(text: str) -> None:
    """Nothing but ValueError, and never a time out of bounds."""
    try:
        assert 0 <= parse_duration(text) <= MAX_SECONDS
    except ValueError as error:
        assert str(error)
