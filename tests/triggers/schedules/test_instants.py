from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.clock import SECOND, to_iso
from agent.triggers.schedules.instants import Timing
from agent.workflows.compile.compiler import check_text, compile_text
from tests.support.debian_cron import DENSE, SPARSE, ZONES
from tests.support.hypothesis_profile import PATIENT

ANCHOR = 1_798_761_600 * SECOND  # 2027-01-01T00:00Z
HOUR = 3600 * SECOND
STEPS = "name: flow\nsteps: {a: {wait: 1ms}}\n"


def _us(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000) * 1000


def _of(spec: dict[str, Any], zone: str = "Europe/Berlin") -> Timing:
    return Timing.of({"timezone": zone, **spec}, ANCHOR, "flow:job")


def _next(timing: Timing, after: str) -> str | None:
    return to_iso(timing.next_after(_us(after)))


def test_every_counts_from_the_anchor() -> None:
    """Instants are the anchor and whole steps from it, whatever time is asked for."""
    timing = _of({"every_seconds": 5400.0})
    assert _next(timing, "2027-01-01T00:00Z") == "2027-01-01T01:30:00.000Z"
    assert _next(timing, "2027-01-01T01:29:59.999Z") == "2027-01-01T01:30:00.000Z"
    assert _next(timing, "2027-01-01T01:30Z") == "2027-01-01T03:00:00.000Z"


def test_every_does_not_wait_for_an_anchor_in_the_future() -> None:
    """A clock that ran a year ahead recorded it; after the correction the steps go on."""
    assert _next(_of({"every_seconds": 3600.0}), "2026-01-01T00:10Z") == "2026-01-01T01:00:00.000Z"


def test_every_counts_from_its_start_where_it_has_one() -> None:
    """`start` is the first instant, and the anchor does not matter."""
    timing = _of({"every_seconds": 86_400.0, "start": "2027-02-01T08:00"})
    assert _next(timing, "2027-01-01T00:00Z") == "2027-02-01T07:00:00.000Z"
    assert _next(timing, "2027-02-01T07:00Z") == "2027-02-02T07:00:00.000Z"


def test_every_millisecond_of_a_year_is_counted_at_once() -> None:
    """Counting and listing an interval is arithmetic."""
    timing = _of({"every_seconds": 0.001})
    assert timing.next_after(ANCHOR + 1500) == ANCHOR + 2000
    gap = timing.between(ANCHOR, ANCHOR + 365 * 24 * HOUR, 2)
    assert (gap.count, gap.is_exact) == (31_536_000_000, True)
    assert gap.latest == [ANCHOR + 365 * 24 * HOUR - 1000, ANCHOR + 365 * 24 * HOUR]
    assert gap.first == ANCHOR + 1000


def test_at_is_local_time_unless_it_has_an_offset() -> None:
    """Times are sorted, and one that is written twice comes once."""
    timing = _of(
        {"at": ["2027-07-01T08:00", "2027-01-31T08:00:00Z", "2027-02-01", "2027-07-01T06:00Z"]}
    )
    gap = timing.between(0, _us("2028-01-01T00:00Z"), 10)
    assert [to_iso(instant) for instant in gap.latest] == [
        "2027-01-31T08:00:00.000Z",
        "2027-01-31T23:00:00.000Z",
        "2027-07-01T06:00:00.000Z",
    ]
    assert timing.next_after(gap.latest[-1]) is None


def test_at_in_a_gap_or_a_fold_is_decided() -> None:
    """A skipped time is the moment right after the gap; a repeated one is the first of the two."""
    assert (
        _next(_of({"at": ["2027-03-28T02:30"]}), "2027-01-01T00:00Z") == "2027-03-28T01:00:00.000Z"
    )
    assert (
        _next(_of({"at": ["2027-10-31T02:30"]}), "2027-01-01T00:00Z") == "2027-10-31T00:30:00.000Z"
    )


def test_start_and_end_are_inclusive_and_dates_are_whole_days() -> None:
    """A schedule with `end: 2027-01-03` still runs in the evening of that day."""
    spec = {"cron": "0 0,23 * * *", "start": "2027-01-02", "end": "2027-01-03"}
    gap = _of(spec).between(0, _us("2028-01-01T00:00Z"), 10)
    assert [to_iso(instant) for instant in gap.latest] == [
        "2027-01-01T23:00:00.000Z",
        "2027-01-02T22:00:00.000Z",
        "2027-01-02T23:00:00.000Z",
        "2027-01-03T22:00:00.000Z",
    ]
    assert (gap.count, gap.is_exact) == (4, True)
    exact = _of({**spec, "start": "2027-01-02T23:00", "end": "2027-01-03T23:00"})
    assert exact.between(0, _us("2028-01-01T00:00Z"), 10).latest == gap.latest[1:]


def test_bounds_at_the_ends_of_the_calendar_are_no_bounds() -> None:
    """People write such years for "always"."""
    timing = _of({"cron": "0 8 * * *", "start": "0001-01-01", "end": "9999-12-31"})
    assert _next(timing, "2027-01-01T00:00Z") == "2027-01-01T07:00:00.000Z"
    assert timing.between(_us("2027-01-01T00:00Z"), _us("2027-01-11T00:00Z"), 1).count == 10


def test_times_may_stand_without_quotes() -> None:
    """The reader of workflow files leaves dates as text, in every form that ISO 8601 has."""
    graph = compile_text(
        STEPS
        + "on:\n  schedule:\n    at: [2027-01-31T08:00, 2027-02-01, 2027-02-01 09:30:00,"
        + " 2027-03-01T08:00:00Z, 2027-03-01T08:00+05:30]\n    start: 2027-01-01\n    timezone: UTC\n",
    )
    (spec,) = graph.on["schedule"]
    gap = Timing.of(spec, 0).between(0, _us("2028-01-01T00:00Z"), 10)
    assert [to_iso(instant) for instant in gap.latest] == [
        "2027-01-31T08:00:00.000Z",
        "2027-02-01T00:00:00.000Z",
        "2027-02-01T09:30:00.000Z",
        "2027-03-01T02:30:00.000Z",
        "2027-03-01T08:00:00.000Z",
    ]


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("tomorrow", "'tomorrow' is not a time; write one such as 2027-01-31T08:00"),
        ("2027-02-30", "'2027-02-30' is not a time"),
        ("08:00", "'08:00' is not a time"),
        ("2027-01-31T25:00", "is not a time"),
        ("20270131", "must be text"),
        ("[]", "must not be empty"),
    ],
)
def test_nonsense_is_refused_as_a_time(written: str, message: str) -> None:
    """The problem names the key and shows what a time looks like."""
    (problem,) = check_text(STEPS + f"on: {{schedule: {{at: {written}}}}}\n")
    assert problem.key.startswith("on.schedule")
    assert message in problem.message


def test_jitter_is_decided_once_for_each_instant_of_a_trigger() -> None:
    """Two computations agree; other instants and other triggers have other delays."""
    timing = _of({"every_seconds": 3600.0, "jitter_seconds": 600.0})
    again = _of({"every_seconds": 3600.0, "jitter_seconds": 600.0})
    other = Timing.of({"every_seconds": 3600.0, "jitter_seconds": 600.0}, ANCHOR, "flow:other")
    nominal = [ANCHOR + number * HOUR for number in range(100)]
    delays = [timing.due(instant) - instant for instant in nominal]
    assert delays == [again.due(instant) - instant for instant in nominal]
    assert len(set(delays)) > 95
    assert delays != [other.due(instant) - instant for instant in nominal]
    assert _of({"every_seconds": 3600.0}).due(ANCHOR) == ANCHOR


INSTANTS = st.integers(min_value=_us("2020-01-01T00:00Z"), max_value=_us("2037-01-01T00:00Z"))
LOCAL_TIMES = st.datetimes(datetime(2020, 1, 1), datetime(2037, 1, 1))  # noqa: DTZ001
BOUNDS = st.none() | LOCAL_TIMES | LOCAL_TIMES.map(lambda time: time.date())


@st.composite
def timings(draw: st.DrawFn) -> Timing:
    """A schedule of any kind, in any of the zones, sometimes with bounds."""
    times = draw(
        st.fixed_dictionaries({"cron": st.sampled_from([*SPARSE, *DENSE])})
        | st.fixed_dictionaries({"every_seconds": st.floats(min_value=0.001, max_value=1e6)})
        | st.fixed_dictionaries(
            {"at": st.lists(LOCAL_TIMES.map(lambda time: time.isoformat()), min_size=1)}
        )
    )
    spec: dict[str, Any] = {**times, "timezone": draw(st.sampled_from(ZONES))}
    for key in ("start", "end"):
        bound = draw(BOUNDS)
        if bound is not None:
            spec[key] = bound.isoformat()
    return Timing.of(spec, draw(INSTANTS), "flow:job")


@PATIENT
@given(timings(), INSTANTS)
def test_each_instant_is_later_than_the_one_before(timing: Timing, after: int) -> None:
    """Whatever the clock does, an instant never comes back."""
    for _ in range(20):
        instant = timing.next_after(after)
        if instant is None:
            return
        assert instant > after
        assert timing.next_after(instant - 1) == instant
        after = instant


@PATIENT
@given(timings(), INSTANTS, st.integers(0, 20 * 24), st.integers(0, 20))
def test_a_gap_holds_what_asking_one_by_one_finds(
    timing: Timing, after: int, hours: int, most: int
) -> None:
    """The newest instants, their number, the first and the last."""
    until = after + hours * HOUR
    listed: list[int] = []
    instant = timing.next_after(after)
    while instant is not None and instant <= until and len(listed) < 3000:
        listed.append(instant)
        instant = timing.next_after(instant)
    if len(listed) == 3000:
        until = listed[-1]
    gap = timing.between(after, until, most)
    assert (gap.count, gap.is_exact) == (len(listed), True)
    assert gap.latest == (listed[-most:] if most else [])
    assert gap.first == (listed[0] if listed else None)
    assert gap.last == (listed[-1] if listed else None)


@PATIENT
@given(
    st.floats(min_value=0.000001, max_value=86_400),
    INSTANTS,
    st.sampled_from(["", "a:b", "flow:job"]),
)
def test_jitter_stays_within_its_bound(jitter: float, nominal: int, trigger_id: str) -> None:
    """A run never starts before its instant, and at most `jitter` after it."""
    timing = Timing.of({"every_seconds": 60.0, "jitter_seconds": jitter}, 0, trigger_id)
    assert 0 <= timing.due(nominal) - nominal <= round(jitter * SECOND)
