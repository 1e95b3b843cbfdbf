"""`doctor` on triggers: one line for each cause, whatever a file or a program says."""

from agent.store.db.database import Database
from agent.tasks.operator.operator import Operator
from agent.tasks.rules.firings.trigger_update import TriggerUpdate
from agent.triggers import sync
from agent.triggers.health_checks import trigger_checks
from tests.support.recorded_triggers import record_workflow, trigger_row

WORKFLOW = """\
name: report
on:
  schedule:
    - {id: daily, cron: 0 9 * * *}
    - {id: hourly, cron: 0 * * * *}
  watch: {id: code, git: {url: /srv/code.git}}
steps: {rest: {wait: 1s}}
"""


def findings(database: Database) -> list[tuple[str, str]]:
    """Return what `doctor` prints while the agent runs."""
    with database.connect("reader") as connection:
        return list(trigger_checks(connection, database.clock.now(), is_running=True))


def test_a_broken_file_is_one_line(still: Database) -> None:
    """However many triggers keep their definitions of it."""
    record_workflow(still, WORKFLOW)
    assert findings(still) == [("ok", "2 schedules, 1 watchers")]
    with still.connect("writer") as tx, tx.transaction():
        sync.note_problem(tx, "report", "report.yaml:4: no such key")
    assert findings(still) == [
        (
            "warning",
            "report:code and 2 more keep their last good definition: report.yaml:4: no such key",
        )
    ]


def test_what_a_watcher_passes_over_is_named(still: Database) -> None:
    """A watcher that works may still not see everything."""
    record_workflow(still, WORKFLOW)
    row = trigger_row(still, "report:code")
    values = {"last_error": "it works, but passed over what it cannot read: 1.ics"}
    Operator(still, still.clock).fire(TriggerUpdate(row.id, row.version, values=values))
    assert findings(still) == [("warning", f"report:code: {values['last_error']}")]


def test_an_error_of_several_lines_is_one_line(still: Database) -> None:
    """Programs write more than one line to their standard error."""
    record_workflow(still, WORKFLOW)
    row = trigger_row(still, "report:code")
    values = {"failures": 2, "last_error": "git ended with exit code 128:\nfatal: no\n  repository"}
    Operator(still, still.clock).fire(TriggerUpdate(row.id, row.version, values=values))
    expected = (
        "report:code: 2 polls in a row failed: git ended with exit code 128: fatal: no repository"
    )
    assert findings(still) == [("warning", expected)]
