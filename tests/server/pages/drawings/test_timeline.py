"""Timelines: bars in order and in proportion, long gaps squeezed."""

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from agent.server.pages.drawings.timeline import (
    MAX_GAPS,
    MOST_GAPS_PERCENT,
    Gap,
    Span,
    TimelineRow,
    draw_timeline,
    ran_seconds,
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
    assert Gap(0.0, 6.0, DAY).label == (0.0, "start")
    assert Gap(94.0, 6.0, DAY).label == (100.0, "end")
    assert Gap(50.0, 50.0, DAY).label == (75.0, "middle")


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
    assert sum(gap.width for gap in gaps) <= MOST_GAPS_PERCENT + 0.1
    by_length = sorted(gaps, key=lambda gap: gap.microseconds)
    assert [gap.width for gap in by_length] == sorted(gap.width for gap in gaps)
    for left, right in itertools.pairwise(gaps):
        assert left.x + left.width <= right.x + 0.01


def test_work_stays_visible_beside_two_days_of_waiting() -> None:
    """The attempts before and after the wait are on one scale; the wait takes most of the width."""
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
    assert fetch.width == pay.width == (100 - MOST_GAPS_PERCENT) / 2
    assert [gap.microseconds for gap in drawn.gaps] == [2 * DAY - 2 * SECOND]
    assert drawn.rows[1].bars[0].width == MOST_GAPS_PERCENT


def test_a_wait_never_looks_short_beside_the_work() -> None:
    """Some milliseconds of work take a third of the width, beside 14 seconds of waiting."""
    drawn = draw_timeline(
        [
            TimelineRow("fetch", (Span(0, 32_000, "succeeded", ""),)),
            TimelineRow("ask", (Span(32_000, 14 * SECOND, "waiting", "", is_wait=True),)),
        ]
    )
    assert 30 < drawn.rows[0].bars[0].width < 40
    assert 60 < drawn.gaps[0].width < MOST_GAPS_PERCENT


def test_a_gap_that_is_barely_squeezed_keeps_its_length() -> None:
    """Else a wait that grows would jump while a person looks."""
    widths = []
    for wait in (2_490_000, 2_510_000):
        runs = (Span(0, 5 * SECOND, "", ""), Span(5 * SECOND + wait, 10 * SECOND + wait, "", ""))
        widths.append(draw_timeline([TimelineRow("a", runs)]).rows[0].bars[0].width)
    assert abs(widths[0] - widths[1]) < 0.1


def test_what_only_waited_fills_the_width() -> None:
    """Nothing ran: there is nothing to make room for."""
    drawn = draw_timeline([TimelineRow("a", (Span(0, DAY, "waiting", "", is_wait=True),))])
    assert (drawn.gaps, drawn.rows[0].bars[0].width) == ([], 100.0)


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


def test_a_step_ran_as_long_as_its_attempt() -> None:
    """Both have the duration between the instants that are shown, which are cut to milliseconds."""
    assert ran_seconds([Span(1_900, 3_400, "succeeded", "")]) == 0.002
