"""What a firing does to the database: overlap, queues, keys that are taken, stale plans."""

from typing import Any

import pytest

from agent.core.state_machine import FiringStatus
from agent.steps.types.outcome import Question, Waiting
from agent.store.engine import firing_rows, trigger_rows
from agent.tasks.rules.firings.trigger_update import Mark, Run, TriggerUpdate
from tests.support.engine import other
from tests.support.trigger_bench import BEGIN, TriggerBench

OVERLAPS = ("skip", "queue", "queue_all", "cancel_other", "allow")


def define(bench: TriggerBench, overlap: str = "skip", **options: Any) -> None:
    """Define one schedule that no pass of these tests finds due."""
    bench.define({"id": "it", "every_seconds": 1e6, "overlap": overlap, **options})


@pytest.mark.parametrize("overlap", OVERLAPS)
def test_a_run_starts_one_task_that_names_its_trigger(bench: TriggerBench, overlap: str) -> None:
    """With nothing open, every policy starts the run: the firing and its task in one transaction."""
    define(bench, overlap)
    result = bench.fire_at(0, context={"scheduled_for": "now"})
    (task_id,) = bench.task_ids()
    assert result.started == {"0": task_id}
    assert bench.fates() == [(0, "started")]
    assert bench.firings()[0]["task_id"] == task_id
    assert bench.trigger_of(task_id) == {
        "kind": "schedule",
        "scheduled_for": "now",
        "late_by": 0.0,
    }


def test_skip_leaves_out_runs_while_a_task_is_open(bench: TriggerBench) -> None:
    """The reason names the open task; after its end the next run starts."""
    define(bench)
    bench.fire_at(0)
    (first,) = bench.task_ids()
    bench.at(1)
    bench.fire_at(1)
    assert bench.statuses_by_key() == {"0": "started", "1": "skipped"}
    assert bench.reason("1") == f"task {first} is still open"
    bench.end(first)
    bench.at(2)
    bench.fire_at(2)
    assert bench.statuses_by_key() == {"0": "started", "1": "skipped", "2": "started"}
    assert len(bench.task_ids()) == 2


def test_queue_keeps_one_run_for_later(bench: TriggerBench) -> None:
    """One run waits for the open task, a further one is skipped; the end starts the one that waits."""
    define(bench, "queue")
    bench.fire_at(0)
    (first,) = bench.task_ids()
    bench.at(5)
    bench.fire_at(1, 2)
    assert bench.statuses_by_key() == {"0": "started", "1": "queued", "2": "skipped"}
    bench.end(first)
    assert bench.statuses_by_key() == {"0": "started", "1": "started", "2": "skipped"}
    _, second = bench.task_ids()
    assert bench.open_ids() == [second]
    assert bench.trigger_of(second)["late_by"] == 4.0


def test_queue_all_starts_every_run_one_after_another(bench: TriggerBench) -> None:
    """Queued runs start in the order of their times, each after the end of the one before."""
    define(bench, "queue_all")
    bench.at(3)
    bench.fire_at(0, 1, 2)
    order = []
    for _ in range(3):
        (running,) = bench.open_ids()
        order.append(running)
        bench.end(running)
    assert bench.open_ids() == []
    assert [each["task_id"] for each in bench.firings()] == order


def test_cancel_other_replaces_the_open_task(bench: TriggerBench) -> None:
    """The later run is recorded as queued, the open task is cancelled, and its end starts the run."""
    define(bench, "cancel_other")
    bench.fire_at(0)
    (first,) = bench.task_ids()
    bench.at(1)
    result = bench.fire_at(1)
    assert result.superseded == [first]
    assert bench.status(first) == "canceled"
    assert bench.statuses_by_key() == {"0": "started", "1": "started"}
    assert len(bench.open_ids()) == 1


def test_cancel_other_drops_a_run_that_still_waits(bench: TriggerBench) -> None:
    """Of runs that wait for the same cancellation, the latest one starts."""
    define(bench, "cancel_other")
    bench.fire_at(0)
    bench.at(2)
    bench.fire_at(1, 2)
    assert bench.statuses_by_key() == {"0": "started", "1": "skipped", "2": "started"}
    assert bench.reason("1") == "a later run replaced it"
    assert len(bench.open_ids()) == 1


def test_allow_starts_runs_side_by_side(bench: TriggerBench) -> None:
    """Every run starts at once."""
    define(bench, "allow")
    bench.at(2)
    bench.fire_at(0, 1, 2)
    assert len(bench.open_ids()) == 3


@pytest.mark.parametrize(("ignores", "expected"), [(True, "started"), (False, "skipped")])
def test_a_task_that_waits_for_a_person_may_leave_room(
    bench: TriggerBench, ignores: bool, expected: str
) -> None:
    """With `overlap_ignores_waiting` a task that only waits for a person does not count."""
    spec = {"id": "it", "every_seconds": 1e6, "overlap_ignores_waiting": ignores}
    bench.define(spec, steps=[other("ask", "approval", config={"message": "May I?"})])
    bench.fire_at(0)
    bench.commit()
    bench.settle({"ask": Waiting(Question("approval", "May I?", {}))})
    bench.at(1)
    bench.fire_at(1)
    assert bench.statuses_by_key()["1"] == expected


def test_a_run_for_later_waits_for_its_time(bench: TriggerBench) -> None:
    """It is queued until it is due, whatever the overlap; no earlier pass starts it."""
    define(bench, "allow")
    bench.fire_at(60)
    trigger = TriggerUpdate(bench.row.id)
    bench.fire(trigger)
    assert bench.fates() == [(60, "queued")]
    assert bench.schedules.next_time() == BEGIN + 60_000_000
    bench.at(60)
    bench.run_pass()
    assert bench.fates() == [(60, "started")]
    assert len(bench.task_ids()) == 1


def test_a_late_run_that_was_queued_is_late(bench: TriggerBench) -> None:
    """A run of a missed instant is late, also when it is staggered and starts when it was to start."""
    define(bench, "allow")
    bench.at(1000)
    run = bench.run_of(0, is_late=True, context={"fate": "late"})
    now = bench.run_of(1, is_late=True)
    staggered = Run(run.keys, bench.now + 10_000_000, {}, run.context, 1, is_late=True)
    bench.fire_runs(now, staggered)
    bench.at(1010)
    bench.run_pass()
    assert bench.fates() == [(0, "late"), (1, "late")]


def test_a_queued_run_becomes_late(bench: TriggerBench) -> None:
    """What waited for more than a minute behind another task is late."""
    define(bench, "queue")
    bench.fire_at(0)
    bench.at(1)
    bench.fire_at(1)
    bench.at(120)
    bench.end(bench.task_ids()[0])
    assert bench.fates() == [(0, "started"), (1, "late")]


def test_a_taken_key_starts_no_task(bench: TriggerBench) -> None:
    """An instant with a row of its own starts nothing again, whatever the row says."""
    define(bench, "allow")
    bench.fire_at(0)
    row = bench.row
    bench.fire(TriggerUpdate(row.id, row.version, marks=[Mark("1", FiringStatus.SKIPPED)]))
    bench.at(2)
    result = bench.fire_at(0, 1, 2)
    assert bench.statuses_by_key() == {"0": "started", "1": "skipped", "2": "started"}
    assert set(result.started) == {"2"} == set(result.fates)
    assert len(bench.task_ids()) == 2


def test_a_taken_key_does_not_count_for_the_overlap(bench: TriggerBench) -> None:
    """A run that starts nothing keeps no other run of the same plan from starting."""
    define(bench, "skip")
    bench.fire_at(0)
    bench.end(bench.task_ids()[0])
    bench.at(1)
    bench.fire_at(0, 1)
    assert bench.statuses_by_key() == {"0": "started", "1": "started"}
    assert len(bench.open_ids()) == 1


def test_a_taken_key_is_not_queued_either(bench: TriggerBench) -> None:
    """With `cancel_other` a run that is queued and released at once needs its row too."""
    define(bench, "cancel_other")
    bench.fire_at(0)
    bench.end(bench.task_ids()[0])
    bench.fire_at(60)
    bench.at(1)
    bench.fire_at(0)
    assert bench.statuses_by_key() == {"0": "started", "60": "queued"}
    assert len(bench.task_ids()) == 1


@pytest.mark.parametrize("overlap", ["allow", "cancel_other"])
def test_only_a_recorded_firing_starts_a_task(
    bench: TriggerBench, overlap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The insertion decides, even if the look before it saw no row."""
    define(bench, overlap)
    bench.fire_at(0)
    bench.end(bench.task_ids()[0])
    # A run that waits makes the trigger busy: with `cancel_other` the next one is queued, then released.
    bench.fire_at(60)
    monkeypatch.setattr(firing_rows, "taken_keys", lambda *_: set())
    bench.at(1)
    assert bench.fire_at(0).started == {}
    assert len(bench.task_ids()) == 1
    assert bench.statuses_by_key()["0"] == "started"


def test_a_stale_plan_changes_nothing(bench: TriggerBench) -> None:
    """A plan from an earlier version of its trigger leaves every row as it is."""
    define(bench, "allow")
    old = bench.row
    bench.change(problem="edited")
    before = (bench.everything(), bench.row, bench.firings())
    plan = TriggerUpdate(
        old.id,
        old.version,
        runs=[bench.run_of(0)],
        marks=[Mark("1", FiringStatus.MISSED)],
        values={"cursor": '"moved"', "next_at": 1},
        events=[("schedule.missed", {})],
    )
    assert bench.fire(plan).status == "stale"
    assert (bench.everything(), bench.row, bench.firings()) == before
    assert bench.rows("SELECT cursor FROM triggers") == [(None,)]


def test_a_plan_for_an_unknown_trigger_is_gone(bench: TriggerBench) -> None:
    """A trigger that is not on record takes no plan."""
    define(bench)
    assert bench.fire(TriggerUpdate("tested:other", 1, runs=[bench.run_of(0)])).status == "gone"
    assert bench.firings() == []


def test_a_plan_counts_up_the_version(bench: TriggerBench) -> None:
    """Of two plans from one version, the second one is stale."""
    define(bench, "allow")
    row = bench.row
    plans = [TriggerUpdate(row.id, row.version, runs=[bench.run_of(number)]) for number in (0, 1)]
    bench.at(1)
    assert [bench.fire(plan).status for plan in plans] == ["applied", "stale"]
    assert bench.fates() == [(0, "started")]


def test_a_batch_is_one_task_with_a_row_for_each_item(bench: TriggerBench) -> None:
    """All items of a batch name the same task, also when the batch was queued first."""
    define(bench, "queue")
    bench.fire_at(0)
    keys = tuple((name, None) for name in ("a", "b", "c"))
    bench.at(1)
    bench.fire_runs(Run(keys, bench.now, {}, {"items": [1, 2, 3]}, 1))
    assert bench.statuses_by_key() == {"0": "started", "a": "queued", "b": "queued", "c": "queued"}
    bench.end(bench.task_ids()[0])
    _, batch = bench.task_ids()
    assert {each["task_id"] for each in bench.firings() if each["key"] != "0"} == {batch}
    assert bench.trigger_of(batch)["items"] == [1, 2, 3]


def test_a_batch_with_a_taken_key_keeps_its_input(bench: TriggerBench) -> None:
    """If the first item has a fate already, the others still start with the batch's input."""
    define(bench, "queue")
    bench.fire_runs(Run((("a", None),), bench.now, {}, {}, 1))
    bench.at(1)
    keys = (("a", None), ("b", None))
    bench.fire_runs(Run(keys, bench.now, {"x": 1}, {"items": [1, 2]}, 1))
    bench.end(bench.task_ids()[0])
    _, batch = bench.task_ids()
    assert bench.document(batch)["input"] == {"x": 1}


def test_failures_in_a_row_pause_the_trigger(bench: TriggerBench) -> None:
    """The run after the last failure is skipped, nothing is due any more, and the operator hears it."""
    define(bench, pause_after_failures=2)
    for second in (0, 1):
        bench.at(second)
        bench.fire_at(second)
        bench.end(bench.task_ids()[-1], is_failed=True)
    assert bench.row.status == "paused"
    assert bench.row.pause_reason == "its last 2 tasks failed"
    assert (bench.row.next_at, bench.row.paused_until) == (None, None)
    assert bench.row.is_paused_for(trigger_rows.FAILURES)
    assert bench.event_types()[-1] == "schedule.paused"
    bench.at(3e6)
    assert bench.run_pass() == []
    assert bench.row.status == "paused"


def test_a_run_is_skipped_when_its_trigger_pauses_for_failures(bench: TriggerBench) -> None:
    """If no notice of the end came before, the next firing finds the failures."""
    define(bench, pause_after_failures=1)
    bench.fire_at(0)
    bench.commit()
    bench.fail("work")
    bench.at(1)
    bench.fire_at(1)
    assert bench.statuses_by_key() == {"0": "started", "1": "skipped"}
    assert bench.reason("1") == "paused after failures"
    assert bench.row.status == "paused"


def test_a_success_or_a_resumption_begins_the_count_again(bench: TriggerBench) -> None:
    """Failures before them do not pause the trigger."""
    define(bench, pause_after_failures=2)
    for second, is_failed in enumerate([True, False, True]):
        bench.at(second)
        bench.fire_at(second)
        bench.end(bench.task_ids()[-1], is_failed=is_failed)
    assert bench.row.status == "active"
    bench.at(10)
    bench.change(resumed_at=bench.now)
    bench.at(11)
    bench.fire_at(11)
    bench.end(bench.task_ids()[-1], is_failed=True)
    assert bench.row.status == "active"


def test_a_run_that_a_person_asked_for_ignores_the_overlap(bench: TriggerBench) -> None:
    """It starts beside an open task, and while the trigger is paused."""
    define(bench)
    bench.fire_at(0)
    bench.commands.pause(bench.row.id)
    bench.at(1)
    bench.fire_at(1, ignores_overlap=True)
    assert len(bench.open_ids()) == 2


def test_a_paused_trigger_keeps_its_queue(bench: TriggerBench) -> None:
    """Queued runs start after the resumption, not before."""
    define(bench, "queue")
    bench.fire_at(0)
    bench.at(1)
    bench.fire_at(1)
    bench.commands.pause(bench.row.id)
    bench.end(bench.task_ids()[0])
    assert bench.fates() == [(0, "started"), (1, "queued")]
    bench.commands.resume(bench.row.id)
    assert bench.fates() == [(0, "started"), (1, "started")]


def test_dropped_runs_are_skipped_with_the_reason(bench: TriggerBench) -> None:
    """A plan may skip what is queued."""
    define(bench, "queue")
    bench.fire_at(0)
    bench.at(1)
    bench.fire_at(1)
    row = bench.row
    bench.fire(TriggerUpdate(row.id, row.version, drop_queued="removed"))
    assert (bench.statuses_by_key()["1"], bench.reason("1")) == ("skipped", "removed")
    assert bench.firings()[1]["input"] is None


def test_an_unreadable_workflow_skips_its_runs(bench: TriggerBench) -> None:
    """A run whose workflow version is not on record is skipped, and the reason says so."""
    define(bench, "allow")
    bench.fire_at(0, workflow_version=7)
    assert bench.fates() == [(0, "skipped")]
    assert bench.task_ids() == []
