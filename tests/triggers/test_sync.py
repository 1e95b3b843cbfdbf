"""The stored triggers follow their workflow: edits, removal, return; and what becomes of their past."""

from typing import Any

from agent.core.clock import SECOND
from agent.store.engine import trigger_rows
from agent.triggers import sync
from tests.support.engine import step
from tests.support.trigger_bench import BEGIN, TriggerBench

HOUR = 3600.0


def every(seconds: float, **options: Any) -> dict[str, Any]:
    """Return a schedule with a name of its own."""
    return {"id": "it", "every_seconds": seconds, "overlap": "allow", **options}


def version_of(bench: TriggerBench, task_id: str) -> int:
    """Return the version of the workflow that a task runs."""
    return int(bench.rows("SELECT workflow_version FROM tasks WHERE id = :id", id=task_id)[0][0])


def test_a_new_schedule_starts_after_its_definition(bench: TriggerBench) -> None:
    """Its instants count from the moment it was recorded; nothing is due before."""
    assert bench.define(every(HOUR)).added == ["tested:it"]
    row = bench.row
    assert (row.status, row.anchor_at, row.created_at) == ("active", BEGIN, BEGIN)
    assert row.next_nominal == BEGIN + int(HOUR) * SECOND
    assert bench.run_pass() == []


def test_the_same_definition_changes_nothing(bench: TriggerBench) -> None:
    """A second scan leaves the row as it is, its version too."""
    bench.define(every(HOUR))
    before = bench.row
    changes = bench.define(every(HOUR))
    assert (changes.added, changes.edited, changes.removed) == ([], [], [])
    assert bench.row == before


def test_an_edit_of_other_keys_keeps_the_times(bench: TriggerBench) -> None:
    """Anchor, next time and fates stay; the new keys hold from the next instant on."""
    bench.define(every(HOUR))
    bench.at(HOUR)
    bench.run_pass()
    bench.at(1.5 * HOUR)
    assert bench.define(every(HOUR, catch_up="none")).edited == ["tested:it"]
    row = bench.row
    assert (row.anchor_at, row.next_nominal) == (BEGIN, BEGIN + 2 * int(HOUR) * SECOND)
    bench.at(2 * HOUR + 120)
    bench.run_pass()
    assert bench.fates() == [(HOUR, "started"), (2 * HOUR, "missed")]


def test_an_edit_of_the_times_settles_the_old_ones(bench: TriggerBench) -> None:
    """What was due under the old times is missed; the new ones count from the edit on."""
    bench.define(every(HOUR))
    bench.at(2.5 * HOUR)
    bench.define(every(600))
    assert bench.fates() == [(HOUR, 2 * HOUR, "missed", 2)]
    assert bench.firings()[0]["reason"] == "its times were edited"
    bench.at(2.5 * HOUR + 600)
    bench.run_pass()
    assert bench.fates()[1:] == [(2.5 * HOUR + 600, "started")]


def test_an_edit_settles_an_instant_that_waits_for_its_jitter(bench: TriggerBench) -> None:
    """An instant whose time has come and whose jitter is not over gets its fate as well."""
    bench.define(every(HOUR, jitter_seconds=HOUR / 2))
    bench.at(HOUR + 0.001)
    bench.define(every(600))
    assert bench.fates() == [(HOUR, "missed")]


def test_an_edit_of_the_times_without_an_id_is_a_new_trigger(bench: TriggerBench) -> None:
    """The old one is removed with what was due; the new one begins."""
    bench.define({"every_seconds": HOUR})
    (old,) = trigger_rows.all_rows(bench._connection)
    bench.at(HOUR + 1)
    changes = bench.define({"every_seconds": 600.0})
    assert changes.removed == [old.id]
    assert len(changes.added) == 1
    assert changes.added != changes.removed
    assert bench.fates() == [(HOUR, "skipped")]
    bench.at(HOUR + 601)
    bench.run_pass()
    assert bench.fates() == [(HOUR, "skipped"), (HOUR + 601, "started")]


def test_a_queued_run_keeps_its_version_through_an_edit(bench: TriggerBench) -> None:
    """It starts with the workflow as it was when it was queued."""
    bench.define(every(HOUR, overlap="queue"))
    bench.at(HOUR)
    bench.run_pass()
    bench.at(2 * HOUR)
    bench.run_pass()
    bench.define(every(HOUR, overlap="queue"), steps=[step("work"), step("more")])
    assert bench.row.workflow_version == 2
    first = bench.task_ids()[0]
    bench.end(first)
    _, second = bench.task_ids()
    assert version_of(bench, second) == 1
    bench.at(3 * HOUR)
    bench.end(second)
    bench.run_pass()
    assert version_of(bench, bench.task_ids()[-1]) == 2


def test_an_edit_that_lets_a_queued_run_start_creates_its_task(bench: TriggerBench) -> None:
    """The task that a run waits for has ended, and the edit comes before the notice of that."""
    bench.define(every(HOUR, overlap="queue"))
    for hour in (1, 2):
        bench.at(hour * HOUR)
        bench.run_pass()
    bench.commit()
    bench.succeed("work")
    bench.define(every(HOUR, overlap="queue", catch_up="none"))
    assert bench.fates() == [(HOUR, "started"), (2 * HOUR, "started")]
    assert [each["task_id"] for each in bench.firings()] == bench.task_ids()


def test_a_removed_schedule_starts_nothing(bench: TriggerBench) -> None:
    """What was due and what was queued is skipped; nothing is due any more."""
    bench.define(every(HOUR, overlap="queue"))
    for hour in (1, 2):
        bench.at(hour * HOUR)
        bench.run_pass()
    bench.at(3 * HOUR)
    assert bench.remove() == ["tested:it"]
    assert bench.remove() == []
    assert bench.fates() == [(HOUR, "started"), (2 * HOUR, "skipped"), (3 * HOUR, "skipped")]
    assert (bench.row.status, bench.row.next_at) == ("removed", None)
    bench.end(bench.task_ids()[0])
    bench.at(9 * HOUR)
    assert bench.run_pass() == []
    assert bench.correct() == 0


def test_a_schedule_that_comes_back_skips_what_passed(bench: TriggerBench) -> None:
    """Its history continues: what came meanwhile is skipped, the next instant starts."""
    bench.define(every(HOUR))
    bench.at(HOUR / 2)
    bench.remove()
    bench.at(2.5 * HOUR)
    assert bench.define(every(HOUR)).edited == ["tested:it"]
    assert bench.fates() == [(HOUR, 2 * HOUR, "skipped", 2)]
    assert bench.row.anchor_at == BEGIN
    bench.at(3 * HOUR)
    bench.run_pass()
    assert bench.fates()[1:] == [(3 * HOUR, "started")]


def test_a_removed_pause_comes_back_as_a_pause(bench: TriggerBench) -> None:
    """Removing a paused schedule skips what its pause held; it is paused when it comes back."""
    bench.define(every(HOUR))
    bench.change(status="paused", pause_reason="holiday", next_at=None)
    bench.at(HOUR)
    bench.remove()
    assert bench.fates() == [(HOUR, "skipped")]
    assert bench.firings()[0]["reason"] == "paused"
    bench.define(every(HOUR))
    assert (bench.row.status, bench.row.pause_reason) == ("paused", "holiday")
    assert bench.row.next_at is None


def test_an_edit_keeps_a_pause(bench: TriggerBench) -> None:
    """Its end too; what the pause held under the old times is skipped."""
    bench.define(every(HOUR))
    until = BEGIN + 10 * int(HOUR) * SECOND
    bench.change(status="paused", pause_reason="x", paused_until=until, next_at=until)
    bench.at(2.5 * HOUR)
    bench.define(every(600))
    assert bench.fates() == [(HOUR, 2 * HOUR, "skipped", 2)]
    assert (bench.row.status, bench.row.next_at) == ("paused", until)


def test_an_id_may_move_to_another_kind(bench: TriggerBench) -> None:
    """A schedule that becomes a watcher of the same name is polled from then on, and back."""
    bench.define(every(HOUR))
    bench.at(HOUR)
    bench.define(watch=({"id": "it", "python": {"call": "x:y"}},))
    row = bench.row
    assert (row.kind, row.next_at, row.next_nominal) == ("watch", bench.now, None)
    assert bench.fates() == [(HOUR, "missed")]
    bench.define(every(HOUR))
    assert (bench.row.kind, bench.row.next_nominal) == ("schedule", BEGIN + 2 * int(HOUR) * SECOND)


def test_an_edit_of_a_source_begins_again(bench: TriggerBench) -> None:
    """Cursor and count of polls are of the old source; other keys keep them."""
    source = {"id": "it", "python": {"call": "x:y"}, "every_seconds": 60.0}
    bench.define(watch=(source,))
    bench.change(cursor='"far"', polls=7, failures=2, last_error="no", next_at=BEGIN + 5)
    bench.define(watch=({**source, "every_seconds": 30.0},))
    assert (bench.row.polls, bench.row.next_at) == (7, BEGIN + 5)
    bench.define(watch=({**source, "python": {"call": "x:z"}},))
    row = bench.row
    assert (row.polls, row.failures, row.last_error, row.next_at) == (0, 0, None, BEGIN)
    assert bench.rows("SELECT cursor FROM triggers") == [(None,)]


def test_a_watcher_that_comes_back_skips_what_came_meanwhile(bench: TriggerBench) -> None:
    """Its cursor stays; the items of its next poll are skipped."""
    source = {"id": "it", "python": {"call": "x:y"}}
    bench.define(watch=(source,))
    bench.change(cursor='"far"', polls=7)
    bench.remove()
    bench.define(watch=(source,))
    row = bench.row
    assert (row.status, row.skip_items, row.polls, row.next_at) == ("active", "removed", 7, BEGIN)
    assert bench.rows("SELECT cursor FROM triggers") == [('"far"',)]


def test_another_directory_removes_nothing(bench: TriggerBench) -> None:
    """Only the directory that defined a trigger removes it."""
    bench.define(every(HOUR))
    with bench.database.connect("writer") as tx, tx.transaction():
        assert sync.remove_triggers(tx, "tested", "elsewhere", bench.now) == []
    assert bench.row.status == "active"
