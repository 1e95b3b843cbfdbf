"""The agent at a glance names every trigger that needs a person."""

from agent.config.settings import Settings
from agent.overview import overview_document
from agent.store.db.database import Database
from agent.store.engine.trigger_rows import FAILURES
from agent.store.read import attention
from agent.tasks.operator.operator import Operator
from agent.tasks.rules.firings.trigger_update import TriggerUpdate
from agent.triggers import sync
from agent.triggers.commands.trigger_commands import TriggerCommands
from tests.support.recorded_triggers import record_workflow, trigger_row

WORKFLOW = """\
name: report
on:
  schedule: {id: daily, cron: 0 9 * * *}
  watch:
    - {id: code, git: {url: /srv/code.git}}
    - {id: news, feed: "https://example.org/feed.xml"}
steps: {rest: {wait: 1s}}
"""


def problems(database: Database) -> dict[str, str]:
    """Return what is wrong, by trigger."""
    with database.connect("reader") as connection:
        document = overview_document(connection, Settings(), database.clock.now())
    assert document["broken"]["count"] == len(document["broken"]["first"])
    return {entry["id"]: entry["problem"] for entry in document["broken"]["first"]}


def change(database: Database, trigger_id: str, **values: object) -> None:
    """Change columns of a trigger."""
    version = trigger_row(database, trigger_id).version
    Operator(database, database.clock).fire(TriggerUpdate(trigger_id, version, values=dict(values)))


def test_triggers_that_need_a_person(sqlite_database: Database) -> None:
    """Failing ones, silent ones, and those whose file has a mistake; not what an operator paused."""
    record_workflow(sqlite_database, WORKFLOW)
    assert problems(sqlite_database) == {}
    change(sqlite_database, "report:code", failures=1, last_error="no answer")
    change(sqlite_database, "report:news", alert="silent")
    assert problems(sqlite_database) == {
        "report:code": "no answer",
        "report:news": "nothing new for longer than expect_every",
    }
    change(sqlite_database, "report:code", failures=0, last_error=None)
    change(sqlite_database, "report:news", status="paused")
    with sqlite_database.connect("writer") as tx, tx.transaction():
        sync.note_problem(tx, "report", "line 4: no such key")
    assert problems(sqlite_database) == dict.fromkeys(
        ("report:code", "report:daily"), "line 4: no such key"
    )


def test_a_trigger_that_paused_itself_needs_a_person(sqlite_database: Database) -> None:
    """Until it is resumed, or until a person has paused it, too: then it is that person's pause."""
    (schedule, *_) = record_workflow(sqlite_database, WORKFLOW)
    commands = TriggerCommands(sqlite_database, sqlite_database.clock)
    own_pause = {"status": "paused", "pause_kind": FAILURES, "next_at": None}

    def named() -> list[str]:
        with sqlite_database.connect("reader") as connection:
            document = overview_document(connection, Settings(), sqlite_database.clock.now())
            listed = {row["id"] for row in attention.troubled_triggers(connection, 10)}
        names = [entry["id"] for entry in document["paused"]["first"]]
        assert document["paused"]["count"] == len(names)
        assert listed == set(names), "the dashboard's inbox names the same ones"
        return names

    commands.pause(schedule)
    assert named() == []
    commands.resume(schedule)
    for decide in (commands.pause, commands.resume):
        change(sqlite_database, schedule, **own_pause, pause_reason="its last task failed")
        assert named() == [schedule]
        decide(schedule)
        assert named() == []
        commands.resume(schedule)
    change(sqlite_database, schedule, pause_kind=FAILURES)
    assert named() == [], "resumed by an earlier version, which leaves the kind"
