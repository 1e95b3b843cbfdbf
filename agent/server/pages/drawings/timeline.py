"""A timeline that squeezes the times in which nothing ran: bars in per cent of its width.

A task that ran for two seconds, waited two days for a person and ran for one second more is drawn as
two stretches with a marked gap between them. The scale is the same everywhere outside of gaps. A gap is
drawn by the logarithm of its length: it looks shorter than it was, never short beside the work, and a
longer one is wider.
"""

import itertools
import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from agent.core.clock import SECOND

SHOWN_ROWS: Final = 15
"""Rows that a page shows unfolded."""
MAX_GAPS: Final = 6
LEAST_GAP_PERCENT: Final = 6.0
"""The part of the whole time that a gap must exceed; a shorter one has no room for its label."""
MOST_GAPS_PERCENT: Final = 70.0
"""What all gaps take together."""
MIN_BAR_PERCENT: Final = 0.6
_LOUDNESS: Final = {"waiting": 1, "skipped": 1, "canceled": 1, "running": 3, "failed": 4}
_EDGE_PERCENT: Final = 10.0
"""A gap whose middle is nearer to an edge has its label there: a phone would cut a centred one."""
_WORTH_SQUEEZING: Final = 0.25
"""The part of the busy time that a gap must exceed."""


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of time in microseconds: an attempt, a wait, or a child task."""

    start: int
    end: int
    status: str
    label: str
    is_wait: bool = False
    """Whether nothing ran in it: it may be squeezed."""


@dataclass(frozen=True, slots=True)
class TimelineRow:
    """One line: a step with its attempts, or a child with its own."""

    name: str
    spans: tuple[Span, ...]
    depth: int = 0
    href: str = ""
    detail: str = ""
    seconds: float | None = None
    """How long it ran, once it has ended."""
    since: str | None = None
    """When it began, while it runs or waits."""


@dataclass(frozen=True, slots=True)
class Bar:
    """One rectangle; positions are per cent of the width."""

    x: float
    width: float
    status: str
    label: str
    is_wait: bool


@dataclass(frozen=True, slots=True)
class Gap:
    """A squeezed stretch."""

    x: float
    width: float
    microseconds: int

    @property
    def label(self) -> tuple[float, str]:
        """Where the length of the stretch is written, and how (`text-anchor`): not past an edge."""
        middle = self.x + self.width / 2
        if middle > 100 - _EDGE_PERCENT:
            return self.x + self.width, "end"
        if middle < _EDGE_PERCENT:
            return self.x, "start"
        return round(middle, 2), "middle"


@dataclass(frozen=True, slots=True)
class DrawnRow:
    """A row with its bars."""

    row: TimelineRow
    bars: list[Bar]


@dataclass(frozen=True, slots=True)
class Timeline:
    """All rows on one scale."""

    rows: list[DrawnRow]
    gaps: list[Gap]
    microseconds: int
    """From the first start to the last end."""
    left_out: int = 0
    """Steps that have no row."""

    @property
    def shown(self) -> int:
        return SHOWN_ROWS


def ran_seconds(spans: Sequence[Span]) -> float | None:
    """Return how long something ran, once where several did; None where it only waited."""
    # Attempts are listed with instants in milliseconds: their durations are the same.
    ran = [
        replace(span, start=span.start // 1000 * 1000, end=span.end // 1000 * 1000)
        for span in spans
        if not span.is_wait
    ]
    if not ran:
        return None
    first, last = min(span.start for span in ran), max(span.end for span in ran)
    return _active(_busy(ran, first, last)) / SECOND


def joined(spans: Sequence[Span], most: int) -> tuple[Span, ...]:
    """Return spans over the same time, not many more than a number: close ones of one status become one."""
    if len(spans) <= most:
        return tuple(spans)
    first = min(span.start for span in spans)
    part = max((max(span.end for span in spans) - first) // most, 1)
    close: dict[tuple[str, bool, int], list[Span]] = {}
    for span in spans:
        close.setdefault((span.status, span.is_wait, (span.start - first) // part), []).append(span)
    return tuple(
        replace(
            each[0],
            start=min(span.start for span in each),
            end=max(span.end for span in each),
            label=each[0].label if len(each) == 1 else f"{len(each)} together",
        )
        for each in close.values()
    )


def draw_timeline(rows: Sequence[TimelineRow], left_out: int = 0) -> Timeline:
    """Put rows on one scale. Of spans over each other, as those of a group's items, the loudest is in front."""
    spans = [span for row in rows for span in row.spans]
    if not spans:
        return Timeline([], [], 0)
    scale = _Scale.over(spans)
    drawn = [
        DrawnRow(row, [_bar(scale, span) for span in sorted(row.spans, key=_loudness)])
        for row in rows
    ]
    return Timeline(drawn, scale.gaps(), scale.times[-1] - scale.times[0], left_out)


def _loudness(span: Span) -> int:
    return 0 if span.is_wait else _LOUDNESS.get(span.status, 2)


def _bar(scale: "_Scale", span: Span) -> Bar:
    left, right = scale.percent(span.start), scale.percent(span.end)
    width = max(right - left, MIN_BAR_PERCENT)
    return Bar(
        round(min(left, 100.0 - width), 2), round(width, 2), span.status, span.label, span.is_wait
    )


@dataclass(frozen=True, slots=True)
class _Scale:
    """A map from time to per cent, straight between its points."""

    times: list[int]
    percents: list[float]
    squeezed: list[tuple[int, int]]

    @staticmethod
    def over(spans: Sequence[Span]) -> "_Scale":
        first = min(span.start for span in spans)
        last = max(*(span.end for span in spans), first + 1)
        busy = _busy(spans, first, last)
        squeezed = _gaps(busy, first, last)
        total = last - first - sum(end - start for start, end in squeezed)
        widths = _gap_percents(squeezed, busy, total)
        room = 100.0 - sum(widths)
        times, percents = [first], [0.0]
        for (start, end), width in zip([*squeezed, (last, last)], [*widths, 0.0], strict=True):
            if start > times[-1]:
                percents.append(percents[-1] + room * (start - times[-1]) / max(total, 1))
                times.append(start)
            if end > start:
                percents.append(percents[-1] + width)
                times.append(end)
        return _Scale(times, percents, squeezed)

    def percent(self, time: int) -> float:
        number = min(max(bisect_right(self.times, time), 1), len(self.times) - 1)
        start, end = self.times[number - 1], self.times[number]
        low, high = self.percents[number - 1], self.percents[number]
        return min(max(low + (high - low) * (time - start) / (end - start), 0.0), 100.0)

    def gaps(self) -> list[Gap]:
        return [
            Gap(
                round(self.percent(start), 2),
                round(self.percent(end) - self.percent(start), 2),
                end - start,
            )
            for start, end in self.squeezed
        ]


def _busy(spans: Sequence[Span], first: int, last: int) -> list[tuple[int, int]]:
    """Return the times in which something ran, joined and in order, with the two ends."""
    ran = sorted((span.start, span.end) for span in spans if not span.is_wait)
    joined: list[tuple[int, int]] = [(first, first)]
    for start, end in [*ran, (last, last)]:
        if start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((start, end))
    return joined


def _gaps(busy: list[tuple[int, int]], first: int, last: int) -> list[tuple[int, int]]:
    """Return the longest idle times, if they are long in comparison with the running times."""
    active = _active(busy)
    if active == 0:
        return []
    least = max(active * _WORTH_SQUEEZING, (last - first) * LEAST_GAP_PERCENT / 100)
    between = [(left[1], right[0]) for left, right in itertools.pairwise(busy)]
    long = [gap for gap in between if gap[1] - gap[0] > least]
    return sorted(sorted(long, key=lambda gap: gap[0] - gap[1])[:MAX_GAPS])


def _gap_percents(
    gaps: list[tuple[int, int]], busy: list[tuple[int, int]], total: int
) -> list[float]:
    """Return the width of each gap; `total` is the time that is drawn in proportion.

    A gap that is just worth squeezing keeps its length. One ten times as long is drawn three times as long.
    """
    unit = _active(busy) * _WORTH_SQUEEZING
    drawn = [unit * (1 + 2 * math.log10((end - start) / unit)) for start, end in gaps]
    most = MOST_GAPS_PERCENT / 100
    whole = max(total + sum(drawn), sum(drawn) / most)
    return [100.0 * length / whole for length in drawn]


def _active(busy: list[tuple[int, int]]) -> int:
    return sum(end - start for start, end in busy)
