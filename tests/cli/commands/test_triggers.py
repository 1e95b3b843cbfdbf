"""`agent schedules`, `watchers` and `triggers`: what people see, and what is recorded."""

import json

import pytest

from agent.store.db.database import Database
from tests.support.cli import Cli
from tests.support.recorded_triggers import record_workflow, remove_workflow

WORKFLOW = """\
name: report
on:
  schedule:
    - {id: daily, cron: 0 9 * * *, timezone: Asia/Tokyo}
    - {id: hourly, every: 1h}
  watch: {id: lines, command: {argv: [echo, '{"key": "a", "title": "first"}']}, every: 1h}
steps: {rest: {wait: 1ms}}
"""


@pytest.fixture
def database(cli: Cli) -> Database:
    """Return the database of the directory, with the triggers of a workflow."""
    cli("db", "upgrade")
    database = Database(f"sqlite:///{cli.directory}/data/agent.db")
    record_workflow(database, WORKFLOW, f"{cli.directory}/report.yaml")
    return database


def test_lists_show_when_and_how_it_went(cli: Cli, database: Database) -> None:
    """Times are in the schedule's zone and relative; fates are a strip with its legend."""
    lines = cli("schedules").out.splitlines()
    assert lines[0].split() == ["schedule", "when", "next", "last", "fates", "remarks"]
    daily = next(line for line in lines if line.startswith("report:daily"))
    assert "cron 0 9 * * *" in daily
    assert "09:00 JST (in " in daily, "the zone is named, for it is not the reader's"
    assert "✓ started" in lines[-1] and "✗ missed" in lines[-1]
    cli("schedules", "run", "daily")
    cli("schedules", "skip", "daily")
    daily = next(x for x in cli("schedules").out.splitlines() if x.startswith("report:daily"))
    assert "✓–" in daily
    assert "report:lines  command every 1h" in cli("watchers").out
    both = cli("triggers", "--json").json
    assert [entry["id"] for entry in both] == ["report:daily", "report:hourly", "report:lines"]
    remove_workflow(database, "report")
    assert "no schedules yet" in cli("schedules").out
    assert "removed" in cli("schedules", "list", "--all").out
    assert "was removed" in cli("schedules", "run", "daily", code=3).err


def test_remarks_say_why_nothing_starts(cli: Cli, database: Database) -> None:
    """A pause with its reason and its end; then what a resume did."""
    paused = cli("schedules", "pause", "daily", "--until", "2d", "--reason", "on holiday").out
    assert paused.startswith("report:daily: paused until ")
    assert "paused until" in cli("schedules").out
    assert ": on holiday" in cli("triggers").out
    shown = cli("schedules", "show", "daily").out
    assert shown.startswith("report:daily  paused")
    assert "next: none" in shown
    assert "resumed" in cli("schedules", "resume", "daily").out
    assert "it is active already" in cli("schedules", "resume", "daily").out
    assert "neither a duration" in cli("schedules", "pause", "daily", "--until", "x", code=2).err
    ambiguous = cli("schedules", "pause", "report", code=3).err
    assert "could be any of: report:daily, report:hourly" in ambiguous
    assert "did you mean 'report:daily'?" in cli("schedules", "show", "dayly", code=3).err


def test_a_backfill_prints_its_instants(cli: Cli, database: Database) -> None:
    """The dry run and the run name the same instants, in the schedule's zone."""
    arguments = ["schedules", "backfill", "daily", "--from", "2026-03-01", "--to", "2026-03-03"]
    dry = cli(*arguments, "--dry-run").out
    assert "would queue 3 runs" in dry
    assert "2026-03-01 09:00 JST (" in dry
    assert "2026-03-03 09:00 JST (" in dry, "a date as an end is the whole day"
    capped = cli(*arguments, "--most", "2", "--json").json
    assert capped["instants"] == ["2026-03-01T00:00:00.000Z", "2026-03-02T00:00:00.000Z"]
    assert "1 later one is left out" in capped["message"]
    shown = cli("schedules", "show", "daily", "-n", "1").out
    assert "queued: 1" in shown, "the other one has started"
    assert shown.count("○") == 1


def test_a_check_shows_what_would_start(cli: Cli, database: Database) -> None:
    """It records nothing; a reset and a run say what follows."""
    out = cli("watchers", "check", "lines").out
    assert "1 items, 0 of them known; 1 new. Nothing was recorded." in out
    assert "baseline" in out
    assert "nothing has come yet" in cli("watchers", "show", "lines").out
    assert "reset; its next poll is a first one" in cli("watchers", "reset", "report:lines").out
    assert "it polls now" in cli("watchers", "run", "lines").out
    assert (
        "there is no watcher 'daily': it is a schedule"
        in cli("watchers", "show", "daily", code=3).err
    )


def test_commands_leave_a_line_in_the_audit_log(cli: Cli, database: Database) -> None:
    """Who, from where, what, on which trigger, and how it ended; also refusals."""
    cli("schedules", "pause", "daily")
    cli("watchers", "pause", "lines")
    cli("watchers", "run", "lines", code=3)
    (path,) = cli.directory.rglob("audit.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["what"], line["trigger"], line["from"]) for line in lines] == [
        ("pause trigger", "report:daily", "command line"),
        ("pause trigger", "report:lines", "command line"),
        ("run trigger", "report:lines", "command line"),
    ]
    assert [line["outcome"][:7] for line in lines] == ["done", "done", "refused"]


def test_one_trigger_is_shown_whole(cli: Cli, database: Database) -> None:
    """A list has room for a part of an error; `show` prints all of it, and of each reason."""
    error = "cannot be read: " + "because " * 40 + "of that"
    with database.connect("writer") as connection, connection.transaction():
        connection.execute("UPDATE triggers SET last_error = :error", error=error)
        connection.execute(
            "INSERT INTO firings (trigger_id, key, status, reason, recorded_at)"
            " VALUES ('report:lines', 'a', 'skipped', :reason, 1)",
            reason=error.replace("that", "this"),
        )
    assert "of that" not in cli("watchers").out
    shown = "".join(cli("watchers", "show", "lines").out.split())
    assert shown.count("becauseofthat") == 1
    assert shown.count("becauseofthis") == 1


def test_a_schedule_without_further_instants_is_over(cli: Cli, database: Database) -> None:
    """Else an empty column is all that a list says."""
    text = WORKFLOW.replace("{id: hourly, every: 1h}", '{id: once, at: "2020-01-01T00:00"}')
    record_workflow(database, text, f"{cli.directory}/report.yaml")
    assert "over: it has no further instant" in cli("schedules").out
    assert "over:" not in cli("schedules", "show", "daily").out


def test_a_poll_that_runs_is_not_a_time_of_the_past(cli: Cli, database: Database) -> None:
    """A poll may take minutes; until it has ended its time has passed."""
    with database.connect("writer") as connection, connection.transaction():
        connection.execute("UPDATE triggers SET next_at = :at", at=database.clock.now() - 10**8)
    assert "next poll now" in cli("watchers", "show", "lines").out
    assert " ago)" not in cli("watchers").out


def test_triggers_that_no_agent_has_recorded_yet_are_named(cli: Cli) -> None:
    """An agent that has just started reads its files first: to say that there are none would be wrong."""
    cli("db", "upgrade")
    assert "no watchers yet: a workflow defines them" in cli("watchers").out
    cli.write("workflows/report.yaml", WORKFLOW)
    assert "the workflow files define report:lines: `agent up` records them" in cli("watchers").out
    assert "define report:daily, report:hourly:" in cli("schedules").out
    assert "define report:daily, report:hourly, report:lines:" in cli("triggers").out
    assert cli("watchers", "--json").json == []
