"""The operator's commands on schedules and watchers: each instant and item keeps one fate."""

import pytest

from agent.store.db.database import Database
from agent.store.engine import trigger_rows
from agent.tasks.errors import NotFoundError, RefusedError
from agent.tasks.operator.operator import Operator
from agent.tasks.rules.firings.trigger_update import TriggerUpdate
from agent.triggers.commands.trigger_commands import TriggerCommands
from tests.support.recorded_triggers import (
    StillClock,
    fates,
    firings,
    instant,
    record_workflow,
    remove_workflow,
    run_pass,
    trigger_row,
)

HOURLY = """\
name: report
inputs: {hour: {type: text, default: none}}
on:
  schedule:
    - {id: hourly, every: 1h, start: 2026-03-01T00:00:00Z, catch_up: all, timezone: UTC,
       inputs: {hour: "{{ trigger.fate }} {{ trigger.scheduled_for }}"}, OPTIONS}
steps: {rest: {wait: 1s}}
"""
WATCHED = """\
name: inbox
on: {watch: [{id: drop, command: {argv: ["true"]}, every: 5m}]}
steps: {rest: {wait: 1s}}
"""
ID = "report:hourly"


def hourly(database: Database, options: str = "overlap: allow") -> TriggerCommands:
    """Record the hourly schedule and return the commands on it."""
    assert record_workflow(database, HOURLY.replace("OPTIONS", options), "/w/report.yaml") == [ID]
    return TriggerCommands(database, database.clock)


def at(hour: int, day: int = 2) -> str:
    """Return the key of an instant of the hourly schedule."""
    return f"2026-03-{day:02d}T{hour:02d}:00:00.000Z"


def inputs(database: Database) -> list[str]:
    """Return the input of each task, the oldest first."""
    with database.connect("reader") as connection:
        rows = connection.query("SELECT input FROM tasks ORDER BY id")
    return [row[0] for row in rows]


def cancel_tasks(database: Database) -> None:
    """Cancel all open tasks."""
    with database.connect("reader") as connection:
        rows = connection.query("SELECT id FROM tasks WHERE ended_at IS NULL ORDER BY id")
    for (task_id,) in rows:
        Operator(database, database.clock).cancel(task_id)


def fail_tasks(database: Database) -> None:
    """Let all open tasks have failed, without running them."""
    with database.connect("writer") as tx, tx.transaction():
        tx.execute("UPDATE tasks SET status = 'failed' WHERE status IN ('pending', 'running')")


def test_a_paused_schedule_starts_nothing_and_skips_what_came(
    still: Database, clock: StillClock
) -> None:
    """The instants of a pause are one skipped range; the next one starts as always."""
    commands = hourly(still)
    result = commands.pause(ID, reason="holidays")
    assert (result.is_changed, result.message) == (True, "paused")
    row = trigger_row(still, ID)
    assert (row.status, row.pause_reason, row.next_at) == ("paused", "holidays", None)
    clock.skip(3 * 3600 + 60)
    run_pass(still)
    assert fates(still, ID) == {}
    resumed = commands.resume(ID)
    assert resumed.message == "resumed; 3 instants of the pause skipped"
    skipped = firings(still, ID)[f"{at(13)}/{at(15)}"]
    assert (skipped["status"], skipped["reason"], skipped["count"]) == ("skipped", "paused", 3)
    row = trigger_row(still, ID)
    assert (row.status, row.pause_reason, row.resumed_at) == ("active", None, clock.now())
    assert row.next_at == instant(at(16))
    clock.skip(3600)
    run_pass(still)
    assert fates(still, ID)[at(16)] == "started"


def test_a_pause_ends_by_itself_at_its_time(still: Database, clock: StillClock) -> None:
    """`until` is when the daemon resumes it; changing the time again is a change."""
    commands = hourly(still)
    until = clock.now() + 90 * 60_000_000
    assert commands.pause(ID, until).message == "paused until 2026-03-02 13:30 UTC"
    assert not commands.pause(ID, until).is_changed
    assert commands.pause(ID, until + 1, "longer").is_changed
    assert trigger_row(still, ID).next_at == until + 1
    with pytest.raises(RefusedError, match="is not in the future"):
        commands.pause(ID, clock.now())
    clock.skip(2 * 3600)
    run_pass(still)
    assert trigger_row(still, ID).status == "active"
    assert fates(still, ID) == {f"{at(13)}/{at(14)}": "skipped"}


def test_a_resume_catches_up_if_asked(still: Database, clock: StillClock) -> None:
    """With catch-up the schedule's own `catch_up` decides, from the last instant on."""
    commands = hourly(still)
    commands.pause(ID)
    clock.skip(3 * 3600 + 600)
    assert "3 instants to catch up (catch_up: all)" in commands.resume(ID, catch_up=True).message
    run_pass(still)
    assert fates(still, ID) == {at(13): "late", at(14): "queued", at(15): "queued"}
    assert not commands.resume(ID).is_changed


def test_failures_before_a_resume_do_not_count(database: Database, clock: StillClock) -> None:
    """A schedule that was paused for its failures stays resumed until new ones come."""
    database.clock = clock
    commands = hourly(database, "pause_after_failures: 2, overlap: allow")
    for _ in range(2):
        clock.skip(3600)
        run_pass(database)
        fail_tasks(database)
    clock.skip(3600)
    run_pass(database)
    assert trigger_row(database, ID).pause_reason == "its last 2 tasks failed"
    assert trigger_row(database, ID).is_paused_for(trigger_rows.FAILURES)
    clock.skip(60)
    commands.resume(ID)
    assert trigger_row(database, ID).status == "active"
    assert trigger_row(database, ID).pause_kind is None
    clock.skip(3600)
    run_pass(database)
    assert trigger_row(database, ID).status == "active"
    assert fates(database, ID)[at(16)] == "started"


def test_queued_runs_wait_for_the_resume(still: Database, clock: StillClock) -> None:
    """A pause leaves the queue alone; the resume starts what may start."""
    commands = hourly(still, "overlap: queue")
    for _ in range(2):
        clock.skip(3600)
        run_pass(still)
    assert fates(still, ID) == {at(13): "started", at(14): "queued"}
    commands.pause(ID)
    cancel_tasks(still)
    run_pass(still)
    assert fates(still, ID)[at(14)] == "queued"
    result = commands.resume(ID)
    assert fates(still, ID)[at(14)] == "started"
    assert result.tasks == [firings(still, ID)[at(14)]["task_id"]]


def test_a_run_of_now_has_its_own_key_and_ignores_overlap(
    still: Database, clock: StillClock
) -> None:
    """It starts beside an open task, even of a paused schedule, and changes no instant."""
    commands = hourly(still, "overlap: skip")
    first = commands.run(ID)
    second = commands.run(ID)
    assert len({*first.tasks, *second.tasks}) == 2
    assert first.message == f"started as {first.tasks[0]}"
    keys = sorted(fates(still, ID))
    assert all(key.startswith("manual/2026-03-02T12:00:00") for key in keys)
    assert inputs(still)[0] == '{"hour":"manual 2026-03-02T12:00:00.000Z"}'
    commands.pause(ID)
    assert commands.run(ID).tasks
    commands.resume(ID)
    assert trigger_row(still, ID).next_nominal == instant(at(13))
    clock.skip(3600)
    run_pass(still)
    assert fates(still, ID)[at(13)] == "skipped", "overlap counts tasks that a person started"


def test_a_repeated_request_to_run_starts_nothing_again(still: Database) -> None:
    """The same request key is the same run."""
    commands = hourly(still)
    first = commands.run(ID, request_key="abc")
    again = commands.run(ID, request_key="abc")
    assert (first.is_changed, again.is_changed) == (True, False)
    assert again.tasks == first.tasks
    assert len(inputs(still)) == 1


def test_skip_lets_the_next_instant_pass(still: Database, clock: StillClock) -> None:
    """Each skip takes one more instant; the one after the last skipped starts."""
    commands = hourly(still)
    result = commands.skip(ID)
    assert result.instants == [at(13)]
    assert result.message == "skipped 2026-03-02 13:00 UTC; next is 2026-03-02 14:00 UTC"
    assert commands.skip(ID).instants == [at(14)]
    assert trigger_row(still, ID).next_nominal == instant(at(15))
    clock.skip(3 * 3600)
    run_pass(still)
    assert fates(still, ID) == {at(13): "skipped", at(14): "skipped", at(15): "started"}
    assert {row["reason"] for row in firings(still, ID).values()} == {None, "by the operator"}


def test_a_skipped_instant_never_starts_even_if_its_time_is_computed_again(
    still: Database, clock: StillClock
) -> None:
    """A row blocks its instant: also when a clock that ran ahead pulls the next time back."""
    commands = hourly(still)
    commands.skip(ID)
    row = trigger_row(still, ID)
    values = {
        "next_at": instant(at(13)),
        "next_nominal": instant(at(13)),
        "last_nominal": clock.now(),
    }
    Operator(still, clock).fire(TriggerUpdate(ID, row.version, values=values))
    assert commands.skip(ID).instants == [at(14)]
    clock.skip(3600)
    run_pass(still)
    assert fates(still, ID) == {at(13): "skipped", at(14): "skipped"}
    assert inputs(still) == []


def test_skip_leaves_overdue_instants_to_the_daemon(still: Database, clock: StillClock) -> None:
    """Instants that passed while no daemon ran still get their fates."""
    commands = hourly(still)
    clock.skip(2 * 3600 + 1800)
    assert commands.skip(ID).instants == [at(15)]
    run_pass(still)
    assert fates(still, ID) == {at(13): "late", at(14): "queued", at(15): "skipped"}


def test_backfill_runs_what_has_no_row_the_oldest_first(still: Database, clock: StillClock) -> None:
    """Instants with rows are left alone; a missed range blocks none of its instants."""
    commands = hourly(still, "overlap: allow, stagger: 30s")
    clock.skip(3600)
    run_pass(still)
    clock.skip(10)
    span = (instant(at(10)), instant(at(13)))
    dry = commands.backfill(ID, *span, dry_run=True)
    assert (dry.is_changed, dry.instants) == (False, [at(10), at(11), at(12)])
    assert dry.message == "would queue 3 runs"
    result = commands.backfill(ID, *span)
    assert (result.is_changed, result.message) == (True, "queued 3 runs")
    assert fates(still, ID) == {
        at(10): "started",
        at(11): "queued",
        at(12): "queued",
        at(13): "started",
    }
    clock.skip(31)
    run_pass(still)
    assert fates(still, ID) == {
        at(10): "started",
        at(11): "started",
        at(12): "queued",
        at(13): "started",
    }
    assert inputs(still)[1:] == [
        f'{{"hour":"backfill {at(10)}"}}',
        f'{{"hour":"backfill {at(11)}"}}',
    ]
    assert commands.backfill(ID, *span).message.startswith("every instant in this time was started")
    between = (instant(at(10)) + 1, instant(at(11)) - 1)
    assert commands.backfill(ID, *between).message.startswith("it has no instant in this time")


def test_a_backfill_names_what_it_leaves_out(still: Database, clock: StillClock) -> None:
    """Its maximum takes the oldest; repeated, it takes the next ones."""
    commands = hourly(still)
    span = (instant(at(0)), clock.now() + 10 * 3600 * 1_000_000)
    first = commands.backfill(ID, *span, most=5)
    assert first.instants == [at(hour) for hour in range(5)]
    assert "8 later ones are left out" in first.message
    second = commands.backfill(ID, *span, most=5)
    assert second.instants == [at(hour) for hour in range(5, 10)]
    assert "3 later ones" in second.message
    assert commands.backfill(ID, *span).instants == [at(10), at(11), at(12)], "no future ones"


def test_backfilled_instants_override_a_missed_range(still: Database, clock: StillClock) -> None:
    """The range stays as it is; each instant gets a row of its own."""
    commands = hourly(still)
    commands.pause(ID)
    clock.skip(3 * 3600 + 60)
    commands.resume(ID)
    commands.backfill(ID, instant(at(13)), instant(at(14)))
    assert fates(still, ID) == {
        f"{at(13)}/{at(15)}": "skipped",
        at(13): "started",
        at(14): "queued",
    }


def test_backfilled_runs_obey_overlap(still: Database, clock: StillClock) -> None:
    """One after the other where tasks must not overlap: none is skipped for it."""
    commands = hourly(still, "overlap: skip, stagger: 1s")
    commands.run(ID)
    commands.backfill(ID, instant(at(10)), instant(at(11)))
    clock.skip(60)
    run_pass(still)
    assert [fates(still, ID)[at(hour)] for hour in (10, 11)] == ["queued", "queued"]
    cancel_tasks(still)
    assert [fates(still, ID)[at(hour)] for hour in (10, 11)] == ["started", "queued"]
    cancel_tasks(still)
    assert fates(still, ID)[at(11)] == "started"


@pytest.mark.parametrize(
    ("span", "most", "problem"),
    [
        ((at(12, 3), at(13, 3)), None, "instants of the past"),
        ((at(12, 3), at(10)), None, "instants of the past"),
        ((at(10), at(9)), None, "must not be later"),
        ((at(10), at(11)), 0, "1 to 10,000"),
    ],
)
def test_impossible_backfills_are_refused(
    still: Database, span: tuple[str, str], most: int | None, problem: str
) -> None:
    """The message says what is wrong."""
    commands = hourly(still)
    with pytest.raises(RefusedError, match=problem):
        commands.backfill(ID, *map(instant, span), most=most)


def test_a_watcher_polls_now_resumes_and_is_reset(still: Database, clock: StillClock) -> None:
    """`run` and `resume` make it due; a reset makes its next poll a first one."""
    (watcher,) = record_workflow(still, WATCHED)
    commands = TriggerCommands(still, clock)
    values = {"polls": 3, "cursor": "[1]", "next_at": clock.now() + 1000}
    Operator(still, clock).fire(TriggerUpdate(watcher, 1, values=values))
    assert commands.run(watcher).message == "it polls now"
    assert trigger_row(still, watcher).next_at == clock.now()
    commands.pause(watcher)
    with pytest.raises(RefusedError, match="it is paused: resume it first"):
        commands.run(watcher)
    commands.resume(watcher)
    row = trigger_row(still, watcher)
    assert (row.status, row.skip_items, row.next_at) == ("active", "paused", clock.now())
    commands.pause(watcher)
    commands.resume(watcher, catch_up=True)
    assert trigger_row(still, watcher).skip_items is None
    commands.reset(watcher)
    assert trigger_row(still, watcher).polls == 0
    with still.connect("reader") as connection:
        assert trigger_rows.cursor_of(connection, watcher) is None
    for command in (commands.skip, lambda name: commands.backfill(name, 0, 1)):
        with pytest.raises(RefusedError, match="it is a watcher"):
            command(watcher)


def test_a_reset_is_for_watchers(still: Database) -> None:
    """A schedule has no cursor."""
    with pytest.raises(RefusedError, match="it is a schedule"):
        hourly(still).reset(ID)


def test_a_removed_trigger_refuses_every_command(still: Database) -> None:
    """It starts nothing any more, and says so."""
    commands = hourly(still)
    remove_workflow(still, "report")
    for command in (commands.pause, commands.resume, commands.run, commands.skip, commands.reset):
        with pytest.raises(RefusedError, match="report:hourly was removed"):
            command(ID)
    with pytest.raises(RefusedError, match="was removed"):
        commands.backfill(ID, 0, 1)
    with pytest.raises(NotFoundError, match="there is no trigger report:daily"):
        commands.pause("report:daily")


def test_a_broken_schedule_is_taken_into_use_again(still: Database, clock: StillClock) -> None:
    """Resume repairs it once its definition can be read; pausing it is refused."""
    commands = hourly(still)
    values = {"status": "broken", "problem": "KeyError: x", "next_at": None}
    Operator(still, clock).fire(TriggerUpdate(ID, 1, values=values))
    with pytest.raises(RefusedError, match="it is broken and starts nothing: KeyError: x"):
        commands.pause(ID)
    assert commands.resume(ID).message == "in use again"
    row = trigger_row(still, ID)
    assert (row.status, row.problem, row.next_nominal) == ("active", None, instant(at(13)))


def test_inputs_that_the_workflow_refuses_are_refused_to_the_person(still: Database) -> None:
    """Nothing is recorded: the person sees the reason."""
    text = HOURLY.replace("OPTIONS", "overlap: allow").replace("{type: text", "{type: number")
    record_workflow(still, text.replace("default: none", "default: 1"))
    with pytest.raises(RefusedError, match="its inputs: "):
        TriggerCommands(still, still.clock).run(ID)
    assert fates(still, ID) == {}


def test_an_instant_whose_inputs_were_refused_can_be_backfilled(
    still: Database, clock: StillClock
) -> None:
    """Once the inputs are mended; its own row then overrides that it was skipped."""
    mended = HOURLY.replace("OPTIONS", "overlap: allow")
    wrong = mended.replace("{type: text, default: none}", "{type: number, default: 1}")
    record_workflow(still, wrong)
    clock.skip(3601)
    run_pass(still)
    assert fates(still, ID) == {f"{at(13)}/{at(13)}": "skipped"}
    record_workflow(still, mended)
    commands = TriggerCommands(still, clock)
    assert commands.backfill(ID, instant(at(13)), instant(at(13))).instants == [at(13)]
    run_pass(still)
    assert fates(still, ID)[at(13)] == "started"
    cancel_tasks(still)


def test_a_repeated_request_skips_one_instant(still: Database, clock: StillClock) -> None:
    """A chat may deliver a message twice, also after the instant has passed."""
    commands = hourly(still)
    first = commands.skip(ID, request_key="telegram:1")
    again = commands.skip(ID, request_key="telegram:1")
    assert first.instants == again.instants == [at(13)]
    assert (first.is_changed, again.is_changed) == (True, False)
    assert "already skipped" in again.message
    assert commands.skip(ID, request_key="telegram:2").instants == [at(14)]
    clock.skip(3 * 3600)
    run_pass(still)
    assert commands.skip(ID, request_key="telegram:1").is_changed is False
    assert list(fates(still, ID).values()).count("skipped") == 2
    cancel_tasks(still)


def test_a_command_that_became_stale_is_planned_again(
    still: Database, clock: StillClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pass of the daemon between plan and commit changes the version, and not the outcome."""
    commands = hourly(still)
    fire, interruptions = Operator.fire, [1, 1]

    def interrupted(self: Operator, update: TriggerUpdate) -> object:
        if interruptions:
            interruptions.pop()
            version = trigger_row(still, ID).version
            fire(Operator(still, clock), TriggerUpdate(ID, version, values={"polls": 0}))
        return fire(self, update)

    monkeypatch.setattr(Operator, "fire", interrupted)
    assert commands.skip(ID).instants == [at(13)]
    assert fates(still, ID) == {at(13): "skipped"}


def test_triggers_are_found_by_id_name_or_workflow(still: Database) -> None:
    """What is ambiguous or unknown is refused with a hint."""
    commands = hourly(still)
    record_workflow(still, WATCHED)
    two = HOURLY.replace("name: report", "name: other").replace("OPTIONS", "overlap: allow")
    extra = "    - {id: extra, every: 2h}\nsteps:"
    record_workflow(still, two.replace("steps:", extra), "/w/other.yaml")
    assert commands.find("report:hourly").id == ID
    assert commands.find("drop").id == commands.find("inbox").id == "inbox:drop"
    assert commands.find("report").id == ID
    for text in ("hourly", "other"):
        with pytest.raises(RefusedError, match="could be any of: other:"):
            commands.find(text)
    with pytest.raises(NotFoundError, match="there is no schedule 'drop': it is a watcher"):
        commands.find("drop", "schedule")
    with pytest.raises(NotFoundError, match="did you mean 'inbox:drop'"):
        commands.find("drip")
    remove_workflow(still, "other")
    assert commands.find("hourly").id == ID
    assert commands.find("extra").status == "removed"
