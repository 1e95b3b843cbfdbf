"""What becomes of due instants: catch-up, windows, jitter, pauses, budgets, and clocks that jump."""

from datetime import UTC, datetime
from typing import Any

import pytest

from agent.config.models import BudgetSettings
from agent.core.clock import SECOND
from agent.core.state_machine import FiringStatus
from agent.store.db.json_values import decode
from agent.store.engine import trigger_rows
from agent.tasks.rules.firings.trigger_update import Mark, TriggerUpdate
from agent.triggers.run_builder import instant_key
from agent.triggers.schedules import passes
from agent.triggers.schedules.passes import SchedulePass
from agent.triggers.schedules.schedule_plan import next_values, timing_of
from tests.support.trigger_bench import BEGIN, TriggerBench

HOUR = 3600.0
YEAR = 365 * 24 * HOUR


def every(seconds: float, **options: Any) -> dict[str, Any]:
    """Return a schedule that starts beside open tasks, so that only its times decide."""
    return {"id": "it", "every_seconds": seconds, "overlap": "allow", **options}


def test_every_instant_starts_once(bench: TriggerBench) -> None:
    """A pass at each time starts one task; a pass between two starts nothing."""
    bench.define(every(60))
    for second in (59, 60, 61, 119, 120, 121):
        bench.at(second)
        bench.run_pass()
    assert bench.fates() == [(60, "started"), (120, "started")]
    assert len(bench.task_ids()) == 2
    first = bench.trigger_of(bench.task_ids()[0])
    assert first["scheduled_for"] == "2027-01-15T08:01:00.000Z"
    assert (first["fate"], first["late_by"]) == ("started", 0.0)
    assert bench.row.next_nominal == BEGIN + 180 * SECOND


def test_what_is_found_within_a_minute_is_on_time(bench: TriggerBench) -> None:
    """Up to a minute an instant is started, then it is late."""
    bench.define(every(HOUR))
    bench.at(HOUR + 60)
    bench.run_pass()
    bench.at(2 * HOUR + 61)
    bench.run_pass()
    assert bench.fates() == [(HOUR, "started"), (2 * HOUR, "late")]


def test_catch_up_latest(bench: TriggerBench) -> None:
    """The newest missed instant starts late; the others are one range."""
    bench.define(every(HOUR))
    bench.at(5 * HOUR + 120)
    bench.run_pass()
    assert bench.fates() == [(HOUR, 4 * HOUR, "missed", 4), (5 * HOUR, "late")]
    assert len(bench.task_ids()) == 1
    assert bench.event_types()[-1] == "schedule.missed"
    (data,) = bench.rows("SELECT data FROM events WHERE type = 'schedule.missed'")[-1]
    assert decode(data)["count"] == 4
    assert decode(data)["to"] == "2027-01-15T12:00:00.000Z", "the last that was missed"
    bench.run_pass()
    assert len(bench.task_ids()) == 1


def test_catch_up_latest_leaves_out_what_an_instant_on_time_replaces(bench: TriggerBench) -> None:
    """If an instant is due just now, no missed one starts beside it."""
    bench.define(every(HOUR))
    bench.at(3 * HOUR)
    bench.run_pass()
    assert bench.fates() == [(HOUR, 2 * HOUR, "missed", 2), (3 * HOUR, "started")]


def test_catch_up_none(bench: TriggerBench) -> None:
    """No missed instant starts; one missed instant is a row of its own."""
    bench.define(every(HOUR, catch_up="none"))
    bench.at(HOUR + 120)
    bench.run_pass()
    bench.at(4 * HOUR + 120)
    bench.run_pass()
    assert bench.fates() == [(HOUR, "missed"), (2 * HOUR, 4 * HOUR, "missed", 3)]
    assert bench.task_ids() == []


@pytest.mark.parametrize(("catch_up", "tasks"), [("none", 0), ("ask", 1), ("latest", 1)])
@pytest.mark.parametrize("is_restart", [True, False])
def test_an_instant_shortly_before_a_start_was_missed(
    bench: TriggerBench, catch_up: str, tasks: int, is_restart: bool
) -> None:
    """With `none` and `ask` it does not start by itself; a machine that woke is an agent that was started."""
    bench.define(every(HOUR, catch_up=catch_up))
    bench.at(HOUR + 20)
    if is_restart:
        bench.schedules.close()
        bench.schedules = SchedulePass(bench.database, bench.still, BudgetSettings())
    bench.run_pass()
    ((_, fate),) = bench.fates()
    assert fate == ("started" if catch_up == "latest" else "missed")
    ((count,),) = bench.rows("SELECT count(*) FROM tasks")
    assert count == tasks


def test_an_instant_that_a_running_agent_finds_late_starts(
    bench: TriggerBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy agent, or one without its database for a moment, has missed nothing."""
    monkeypatch.setattr(bench.still, "monotonic", lambda: bench.now / SECOND)
    bench.schedules = SchedulePass(bench.database, bench.still, BudgetSettings())
    bench.define(every(HOUR, catch_up="none"))
    bench.at(HOUR + 20)
    bench.run_pass()
    assert bench.fates() == [(HOUR, "started")]


@pytest.mark.parametrize("is_on_time", [True, False])
def test_catch_up_all_starts_the_newest_spread(bench: TriggerBench, is_on_time: bool) -> None:
    """The newest `most` start, one every `stagger`; the range before them ends where they begin."""
    bench.define(every(HOUR, catch_up="all", most=2, stagger_seconds=10.0))
    last = 6 * HOUR
    bench.at(last + (55 if is_on_time else 120))
    bench.run_pass()
    expected: list[tuple[Any, ...]]
    if is_on_time:
        expected = [(HOUR, 3 * HOUR, "missed", 3), (4 * HOUR, "late"), (5 * HOUR, "queued")]
        expected.append((last, "queued"))
    else:
        expected = [(HOUR, 4 * HOUR, "missed", 4), (5 * HOUR, "late"), (last, "queued")]
    assert bench.fates() == expected
    waiting = [each["due_at"] for each in bench.firings() if each["status"] == "queued"]
    assert waiting == [bench.now + (n + 1) * 10 * SECOND for n in range(len(waiting))]
    bench.at(last + (76 if is_on_time else 140))
    bench.run_pass()
    ends = ["late", "late", "started"] if is_on_time else ["late", "late"]
    assert [fate[-1] for fate in bench.fates()[1:]] == ends
    assert len(bench.task_ids()) == len(ends)


def test_catch_up_all_without_a_rest(bench: TriggerBench) -> None:
    """If everything that was missed starts, there is no range and no notice."""
    bench.define(every(HOUR, catch_up="all", most=3, stagger_seconds=1.0))
    bench.at(3 * HOUR + 120)
    bench.run_pass()
    assert [fate[-1] for fate in bench.fates()] == ["late", "queued", "queued"]
    assert "schedule.missed" not in bench.event_types()


@pytest.mark.parametrize("catch_up", ["latest", "all"])
def test_a_window_bounds_what_is_caught_up(bench: TriggerBench, catch_up: str) -> None:
    """What was missed longer ago than the window does not start any more."""
    bench.define(every(HOUR, catch_up=catch_up, window_seconds=1.5 * HOUR))
    bench.at(3 * HOUR + 120)
    bench.run_pass()
    started = [(2 * HOUR, "late"), (3 * HOUR, "queued")]
    if catch_up == "latest":
        started = [(3 * HOUR, "late")]
    rest = [(HOUR, "missed")] if catch_up == "all" else [(HOUR, 2 * HOUR, "missed", 2)]
    assert bench.fates() == rest + started


@pytest.mark.parametrize(
    ("hours", "window", "reason"),
    [
        (3, 1.5 * HOUR, ", for longer than its window"),
        (9, None, "; catch_up starts 3 at most"),
        (9, 5.5 * HOUR, "; catch_up starts 3 at most, and only those within its window"),
        (9, 2.5 * HOUR, ", for longer than its window"),
    ],
)
def test_what_all_leaves_out_has_its_reason(
    bench: TriggerBench, hours: int, window: float | None, reason: str
) -> None:
    """The window, the maximum, or both."""
    limits = {} if window is None else {"window_seconds": window}
    bench.define(every(HOUR, catch_up="all", most=3, **limits))
    bench.at(hours * HOUR + 120)
    bench.run_pass()
    assert str(bench.firings()[0]["reason"]).endswith("asleep" + reason)


def test_a_window_that_nothing_fits_in(bench: TriggerBench) -> None:
    """All is missed, and the reason says why."""
    bench.define(every(HOUR, window_seconds=300.0))
    bench.at(2 * HOUR + 1000)
    bench.run_pass()
    assert bench.fates() == [(HOUR, 2 * HOUR, "missed", 2)]
    assert "window" in str(bench.firings()[0]["reason"])


@pytest.mark.parametrize("jitter", [0.5, 90.0])
@pytest.mark.parametrize("catch_up", ["latest", "all", "none"])
def test_jitter_delays_and_loses_nothing(bench: TriggerBench, jitter: float, catch_up: str) -> None:
    """Each instant starts once it is due with its jitter, and every instant has exactly one fate."""
    options = {"catch_up": catch_up, "window_seconds": 40.0, "most": 3, "stagger_seconds": 1.0}
    bench.define(every(7, jitter_seconds=jitter, **options))
    timing = timing_of(bench.row)
    steps = [3.1, 50.0, 1.0, 2.0, 200.0, 3.0, 0.4, 0.4, 90.0, 1.0, 400.0, 5.0]
    second = 0.0
    for more in steps:
        second += more
        bench.at(second)
        bench.run_pass()
    last = bench.row.last_nominal
    assert last is not None
    bench.at(second + 1000)
    bench.run_pass()
    decided = covered(bench)
    expected = timing.between(BEGIN, last, 10_000).latest
    assert [each for each in decided if each <= last] == expected
    early = [
        each["key"]
        for each in bench.firings()
        if each["status"] == "started" and each["recorded_at"] < timing.due(each["nominal_at"])
    ]
    assert early == []


def covered(bench: TriggerBench) -> list[int]:
    """Return every instant with a fate, once for each fate."""
    timing = timing_of(bench.row)
    instants: list[int] = []
    for each in bench.firings():
        if each["until_at"] is None:
            instants.append(each["nominal_at"])
        else:
            inside = timing.between(each["nominal_at"] - 1, each["until_at"], 10_000)
            assert (inside.first, inside.count) == (each["nominal_at"], each["count"])
            instants += inside.latest
    return sorted(instants)


def test_a_pause_ends_by_itself_and_catches_up_nothing(bench: TriggerBench) -> None:
    """Instants of the pause are skipped; the first one after it starts."""
    bench.define(every(HOUR))
    until = BEGIN + int(2.5 * HOUR) * SECOND
    bench.change(status="paused", pause_reason="x", paused_until=until, next_at=until)
    bench.at(HOUR)
    bench.run_pass()
    assert bench.fates() == []
    bench.at(2.5 * HOUR)
    bench.run_pass()
    assert bench.row.status == "active"
    assert bench.fates() == [(HOUR, 2 * HOUR, "skipped", 2)]
    bench.at(3 * HOUR)
    bench.run_pass()
    assert bench.fates() == [(HOUR, 2 * HOUR, "skipped", 2), (3 * HOUR, "started")]


def test_nothing_starts_when_the_budget_of_the_day_is_used_up(
    bench: TriggerBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Instants are missed with that reason, also those that are on time."""
    bench.define(every(HOUR))
    monkeypatch.setattr(passes, "_exhausted", lambda *_: "the budget is exhausted")
    bench.at(2 * HOUR)
    bench.run_pass()
    assert bench.fates() == [(HOUR, 2 * HOUR, "missed", 2)]
    assert bench.firings()[0]["reason"] == "the budget is exhausted"
    assert bench.task_ids() == []


def test_a_range_never_blocks_its_instants(bench: TriggerBench) -> None:
    """An instant inside a missed range starts if a run of it comes: its own row overrides the range."""
    bench.define(every(HOUR, catch_up="none"))
    bench.at(3 * HOUR + 120)
    bench.run_pass()
    bench.at(0.5 * HOUR)
    assert bench.correct() == 1
    bench.at(HOUR)
    bench.run_pass()
    assert bench.fates() == [(HOUR, "started"), (HOUR, 3 * HOUR, "missed", 3)]


def test_a_clock_that_ran_a_year_ahead_silences_nothing(bench: TriggerBench) -> None:
    """Set right again, the schedule goes on with its next instant; what has a row starts no more."""
    bench.define(every(HOUR))
    bench.at(YEAR + 120)
    bench.run_pass()
    assert bench.fates()[-1] == (YEAR, "late")
    bench.at(HOUR / 2)
    assert bench.run_pass() == []
    assert bench.correct() == 1
    assert bench.correct() == 0
    for hour in (1, 2):
        bench.at(hour * HOUR)
        bench.run_pass()
    started = [fate for fate in bench.fates() if len(fate) == 2]
    assert started == [(HOUR, "started"), (2 * HOUR, "started"), (YEAR, "late")]
    # A year later the instant that ran ahead of its time does not run again.
    bench.at(YEAR)
    bench.run_pass()
    assert len(bench.task_ids()) == 3


def test_a_clock_that_is_set_back_repeats_nothing(bench: TriggerBench) -> None:
    """Instants that have started are not started again when their times come a second time."""
    bench.define(every(60))
    for second in (60, 120, 180):
        bench.at(second)
        bench.run_pass()
    bench.at(50)
    bench.correct()
    for second in (60, 120, 180, 240):
        bench.at(second)
        bench.run_pass()
    assert bench.fates() == [(60, "started"), (120, "started"), (180, "started"), (240, "started")]
    assert len(bench.task_ids()) == 4


def test_a_pause_through_a_clock_that_ran_ahead(bench: TriggerBench) -> None:
    """A schedule that is resumed after the clock was set right starts at its next instant."""
    bench.define(every(HOUR))
    bench.at(YEAR)
    bench.run_pass()
    until = BEGIN + int(1.5 * HOUR) * SECOND
    bench.change(status="paused", pause_reason="x", paused_until=until, next_at=until)
    bench.at(1.5 * HOUR)
    bench.run_pass()
    bench.at(2 * HOUR)
    bench.run_pass()
    assert (2 * HOUR, "started") in bench.fates()


def test_an_instant_that_a_person_skipped_stays_skipped(bench: TriggerBench) -> None:
    """A correction does not take a skipped instant for a clock that ran ahead."""
    bench.define(every(HOUR))
    row = bench.row
    timing = timing_of(row)
    skipped = timing.next_after(BEGIN)
    assert skipped is not None
    mark = Mark(instant_key(skipped), FiringStatus.SKIPPED, "by the operator", skipped)
    values = {**next_values(timing, timing.next_after(skipped)), "last_nominal": skipped}
    bench.fire(TriggerUpdate(row.id, row.version, marks=[mark], values=values))
    assert bench.correct() == 0
    for hour in (1, 2):
        bench.at(hour * HOUR)
        bench.run_pass()
    assert bench.fates() == [(HOUR, "skipped"), (2 * HOUR, "started")]


def test_single_times_end(bench: TriggerBench) -> None:
    """After the last time of `at` nothing is due any more."""
    bench.define({"id": "it", "at": ["2027-01-15T08:01:00Z", "2027-01-15T08:02:00Z"]})
    bench.at(120)
    bench.run_pass()
    assert bench.fates() == [(60, "missed"), (120, "started")]
    assert (bench.row.next_at, bench.row.next_nominal) == (None, None)
    assert bench.schedules.next_time() is None


@pytest.mark.parametrize(
    ("day", "expected"),
    [
        # The clock skips 02:30: the run of that day is right after the gap.
        (datetime(2027, 3, 27, 12, tzinfo=UTC), ["2027-03-28T01:00:00.000Z", "2027-03-29T00:30:00.000Z"]),
        # The clock shows 02:30 twice: it runs the first time only.
        (datetime(2027, 10, 30, 12, tzinfo=UTC), ["2027-10-31T00:30:00.000Z", "2027-11-01T01:30:00.000Z"]),
    ],
    ids=["spring", "autumn"],
)  # fmt: skip
def test_days_with_clock_changes(bench: TriggerBench, day: datetime, expected: list[str]) -> None:
    """A daily run starts once on each day, also when the clock is changed."""
    begin = day.timestamp() - BEGIN / SECOND
    bench.at(begin)
    bench.define(
        {"id": "it", "cron": "30 2 * * *", "timezone": "Europe/Berlin", "overlap": "allow"}
    )
    for minute in range(30, 38 * 60, 60):
        bench.at(begin + minute * 60)
        bench.run_pass()
    starts = [bench.trigger_of(task)["scheduled_for"] for task in bench.task_ids()]
    assert starts == expected


def test_a_schedule_that_cannot_be_read_breaks_alone(bench: TriggerBench) -> None:
    """It is taken out of use with the reason; the others fire."""
    bench.define(every(60), {**every(60), "id": "other"})
    with bench.database.connect("writer") as tx, tx.transaction():
        tx.execute("UPDATE triggers SET spec = '{}' WHERE name = 'it'")
    bench.at(60)
    bench.run_pass()
    rows = {row.name: row for row in trigger_rows.all_rows(bench._connection)}
    assert (rows["it"].status, rows["it"].next_at) == ("broken", None)
    assert rows["it"].problem
    assert bench.correct() == 0
    assert bench.fates() == [(60, "started")]
    # The file is read again by a version that knows it.
    bench.at(90)
    bench.define(every(60), {**every(60), "id": "other"})
    bench.at(120)
    bench.run_pass()
    times = [(60, "missed"), (60, "started"), (120, "started"), (120, "started")]
    assert sorted(bench.fates()) == times


def test_inputs_that_are_refused_skip_the_instant(bench: TriggerBench) -> None:
    """The instant is skipped with the reason; the schedule goes on."""
    bench.define(every(60, inputs={"x": "{{ trigger.nothing.there }}"}))
    bench.at(60)
    bench.run_pass()
    assert bench.fates() == [(60, "skipped")]
    assert "its inputs" in str(bench.firings()[0]["reason"])
    assert bench.row.next_nominal == BEGIN + 120 * SECOND


def test_two_daemons_fire_an_instant_once(bench: TriggerBench) -> None:
    """Both plan the same instant; the later plan is stale."""
    bench.define(every(60))
    bench.at(60)
    twin = SchedulePass(bench.database, bench.still, BudgetSettings())
    plans = [*bench.schedules.plan_due(), *twin.plan_due()]
    twin.close()
    assert [bench.fire(plan).status for plan in plans] == ["applied", "stale"]
    assert bench.fates() == [(60, "started")]
