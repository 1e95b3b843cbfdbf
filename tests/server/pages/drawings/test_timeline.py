"""Timelines: bars in order and in proportion, long gaps squeezed."""

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from agent.server.pages.drawings.timeline import (
    GAP_PERCENT,
    MAX_GAPS,
    Gap,
    Span,
    TimelineRow,
    draw_timeline,
)

SECOND = 1_000_000
DAY = 86_400 * SECOND


@st.composite
def rows(draw: st.DrawFn) -> list[TimelineRow]:
    """Draw rows of spans at any times."""
    spans = []
    for _ in range(draw(st.integers(1, 12))):
        start = draw(st.integers(0, DAY))
        length = draw(st.integers(0, DAY))
        spans.append(Span(start, start + length, "succeeded", "", draw(st.booleans())))
    return [TimelineRow("step", (span,)) for span in spans]


def test_the_loudest_of_a_row_is_drawn_last() -> None:
    """A group waits for its items, whose bars are in the same row; a failure must not be covered."""
    spans = [
        Span(2, 8 * SECOND, status, "") for status in ("failed", "running", "succeeded", "skipped")
    ]
    group = Span(1, 9 * SECOND, "waiting", "waited", is_wait=True)
    (row,) = draw_timeline([TimelineRow("each", (*spans, group))]).rows
    assert [bar.status for bar in row.bars] == [
        "waiting", "skipped", "succeeded", "running", "failed"
    ]  # fmt: skip


def test_labels_of_gaps_stay_inside() -> None:
    """At an edge a label ends or begins with its gap; a phone would cut one that is centred there."""
    runs = [(0, 1), (DAY, DAY + 1), (2 * DAY, 2 * DAY + 1)]
    spans = [Span(start * 1, end + SECOND, "succeeded", "") for start, end in runs]
    waits = [Span(2 * DAY + SECOND, 4 * DAY, "waiting", "", is_wait=True)]
    *inner, last = draw_timeline([TimelineRow("step", (*spans, *waits))]).gaps
    assert [gap.label[1] for gap in inner] == ["middle"] * len(inner)
    assert last.label == (last.x + last.width, "end")
    first = Gap(0.0, GAP_PERCENT, DAY)
    assert first.label == (0.0, "start")


@settings(max_examples=50, deadline=None)
@given(rows())
def test_bars_stay_inside_and_keep_their_order(found: list[TimelineRow]) -> None:
    """What starts later is never drawn further left, except at the right edge."""
    drawn = draw_timeline(found)
    bars = [(row.row.spans[0].start, bar) for row in drawn.rows for bar in row.bars]
    for _, bar in bars:
        assert bar.x >= 0
        assert bar.x + bar.width <= 100.01
        assert bar.width > 0
    ordered = sorted(bars, key=lambda each: each[0])
    for (_, left), (_, right) in itertools.pairwise(ordered):
        if left.x + left.width < 99.9:
            assert left.x <= right.x + 1


@settings(max_examples=50, deadline=None)
@given(rows())
def test_at_most_a_few_gaps_are_squeezed(found: list[TimelineRow]) -> None:
    """Gaps have a bound and do not overlap."""
    gaps = draw_timeline(found).gaps
    assert len(gaps) <= MAX_GAPS
    for left, right in itertools.pairwise(gaps):
        assert left.x + left.width <= right.x + 0.01


def test_two_days_of_waiting_take_little_room() -> None:
    """The attempts before and after a wait are drawn on one scale."""
    drawn = draw_timeline(
        [
            TimelineRow("fetch", (Span(0, 2 * SECOND, "succeeded", "attempt 1"),)),
            TimelineRow(
                "pay",
                (
                    Span(2 * SECOND, 2 * DAY, "waiting", "waits", is_wait=True),
                    Span(2 * DAY, 2 * DAY + 2 * SECOND, "succeeded", "attempt 1"),
                ),
            ),
        ]
    )
    fetch, pay = drawn.rows[0].bars[0], drawn.rows[1].bars[1]
    assert fetch.width == pay.width == 47.0
    assert [gap.microseconds for gap in drawn.gaps] == [2 * DAY - 2 * SECOND]
    assert drawn.rows[1].bars[0].width == GAP_PERCENT


def test_a_short_pause_is_drawn_as_long_as_it_was() -> None:
    """Time between two attempts that is short beside them is not squeezed."""
    drawn = draw_timeline(
        [
            TimelineRow("a", (Span(0, 10 * SECOND, "succeeded", ""),)),
            TimelineRow("b", (Span(11 * SECOND, 21 * SECOND, "succeeded", ""),)),
        ]
    )
    assert drawn.gaps == []
    assert drawn.rows[1].bars[0].x == round(1100 / 21, 2)


def test_nothing_ran_yet() -> None:
    """A task without attempts has an empty timeline."""
    assert draw_timeline([TimelineRow("a", ())]).rows == []
