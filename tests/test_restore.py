"""A restored database repeats nothing by itself: what it holds goes on when a person says so."""

import sqlite3
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import pytest

from agent import recovery, restore
from agent.core.clock import SECOND
from agent.core.state_machine import TriggerStatus
from agent.store import backup
from agent.store.db.database import Database, StoreError
from agent.store.db.dialect import Fault
from agent.store.engine import outages
from agent.store.schema import migrate
from agent.tasks.operator.operator import Operator
from agent.tasks.rules.creation import Submission
from agent.triggers.commands.trigger_commands import TriggerCommands
from agent.workflows.graph import Graph
from tests.support.engine import Engine, find_violations, graph, step
from tests.support.recorded_triggers import record_workflow, trigger_row
from tests.support.step_functions import runs
from tests.upgrade.frozen import RELEASED, thaw_sqlite
from tests.upgrade.revisions import set_revision

SCHEDULED = """\
name: nightly
on:
  schedule: [{id: night, cron: "0 2 * * *"}]
  watch: [{id: files, path: {path: "*.txt"}}]
steps:
  one: {shell: {argv: [echo], effect: none}}
"""


def submitted(database: Database, workflow: Graph) -> str:
    """Create a task without a worker that would run it."""
    return Operator(database, database.clock).submit(Submission(graph=workflow))


def backed_up(database: Database, tmp_path: Path) -> Path:
    """Write a backup and return its file."""
    path = tmp_path / "copy.db"
    backup.write(database, path)
    return path


def test_an_effect_is_repeated_only_when_its_task_is_resumed(
    sqlite_database: Database, tmp_path: Path
) -> None:
    """The effect happened after the backup: a worker on the restored database must not repeat it."""
    token = uuid4().hex
    pay = step("pay", "act", given={"token": token})
    task_id = submitted(sqlite_database, graph(pay, step("after", after=["pay"])))
    copy = backed_up(sqlite_database, tmp_path)
    engine = Engine(sqlite_database)
    engine.wait(task_id, "succeeded")
    engine.stop()
    engine.close()
    assert len(runs[token]) == 1

    held = restore.restore(sqlite_database, copy).held
    assert [(task.id, task.steps) for task in held.tasks] == [
        (task_id, (("pay", "python"), ("after", "python")))
    ]
    restored = Database(sqlite_database.url)
    recovery.recover(restored, restored.clock)
    engine = Engine(restored)
    try:
        engine.run(graph(step("free")), "succeeded")
        document = engine.document(task_id)
        assert (document["status"], document["pause_kind"]) == ("paused", "restore")
        assert len(runs[token]) == 1
        engine.operator.resume(task_id)
        engine.wait(task_id, "succeeded")
        assert len(runs[token]) == 2
    finally:
        engine.stop()
        engine.close()
    assert find_violations(restored) == []


def test_everything_open_is_held_and_can_be_released(
    sqlite_database: Database, tmp_path: Path
) -> None:
    """Also what was paused for another reason, and triggers whose pause has an end."""
    operator = Operator(sqlite_database, sqlite_database.clock)
    running, paused = (submitted(sqlite_database, graph(step("one"))) for _ in range(2))
    operator.pause(paused, "for lunch")
    ended = submitted(sqlite_database, graph(step("one")))
    operator.cancel(ended)
    schedule, watcher = record_workflow(sqlite_database, SCHEDULED)
    commands = TriggerCommands(sqlite_database, sqlite_database.clock)
    commands.pause(schedule, until_us=sqlite_database.clock.now() + 60 * SECOND)

    held = restore.restore(sqlite_database, backed_up(sqlite_database, tmp_path)).held
    assert {task.id for task in held.tasks} == {running, paused}
    assert set(held.triggers) == {schedule, watcher}
    database = Database(sqlite_database.url)
    assert restore.held(database) == held
    assert trigger_row(database, schedule).next_at is None

    assert restore.release_all(database, database.clock) == held
    assert restore.held(database) == restore.Held()
    for trigger_id in (schedule, watcher):
        assert trigger_row(database, trigger_id).status == TriggerStatus.ACTIVE
    assert find_violations(database) == []


def test_open_tasks_are_held_on_every_database(database: Database) -> None:
    """After `pg_restore` too: a second hold finds the same, and a release resumes it."""
    task_id = submitted(database, graph(step("one"), step("two", after=["one"])))
    held = restore.hold_all(database, database.clock)
    assert [(task.id, [name for name, _ in task.steps]) for task in held.tasks] == [
        (task_id, ["one", "two"])
    ]
    assert restore.hold_all(database, database.clock) == held
    assert restore.release_all(database, database.clock) == held
    assert restore.held(database) == restore.Held()
    assert find_violations(database) == []


def test_the_replaced_database_is_kept(sqlite_database: Database, tmp_path: Path) -> None:
    """With all that was committed, and the restore itself is on record in the new one."""
    copy = backed_up(sqlite_database, tmp_path)
    with sqlite_database.connect("reader"):
        # A connection that stays open keeps what is committed in the log.
        later = submitted(sqlite_database, graph(step("one")))
        done = restore.restore(sqlite_database, copy)
    assert done.replaced is not None
    kept = Database(f"sqlite:///{done.replaced}")
    with kept.connect("reader") as connection:
        assert connection.query("SELECT id FROM tasks") == [(later,)]
    restored = Database(sqlite_database.url)
    with restored.connect("reader") as connection:
        assert connection.query("SELECT id FROM tasks") == []
    (event,) = outages.latest(restored, [restore.RESTORED])
    assert (event["file"], event["tasks_held"]) == (str(copy), 0)
    assert list(tmp_path.glob("*.restoring*")) == []


def test_a_damaged_database_can_be_replaced(sqlite_database: Database, tmp_path: Path) -> None:
    """That is what backups are for; the damaged file is kept as it is."""
    submitted(sqlite_database, graph(step("one")))
    copy = backed_up(sqlite_database, tmp_path)
    assert sqlite_database.path is not None
    sqlite_database.path.write_bytes(b"no database at all" * 1000)
    done = restore.restore(Database(sqlite_database.url), copy)
    assert done.replaced is not None
    assert done.replaced.read_bytes().startswith(b"no database at all")
    migrate.check(Database(sqlite_database.url))


@pytest.mark.parametrize(
    "change",
    [
        "CREATE TRIGGER quiet AFTER INSERT ON approvals BEGIN"
        " UPDATE approvals SET status = 'approved' WHERE id = new.id; END",
        "CREATE VIEW more AS SELECT * FROM tasks",
        "CREATE TABLE more (n bigint)",
        "ALTER TABLE approvals ADD COLUMN more text DEFAULT 'approved'",
        "DROP INDEX approvals_by_task",
    ],
)
def test_a_backup_with_another_schema_is_not_restored(
    sqlite_database: Database, tmp_path: Path, change: str
) -> None:
    """A trigger in it would act, or answer for a person, in the restored database."""
    file = backed_up(sqlite_database, tmp_path)
    with Database(f"sqlite:///{file}").connect("writer") as connection:
        connection.execute(change)
    with pytest.raises(StoreError, match=r"did not make.*(quiet|more|approvals).*nothing was"):
        restore.restore(sqlite_database, file)
    assert list(tmp_path.glob("*.replaced*")) == []


def test_a_trigger_under_a_name_of_sqlite_is_not_restored(
    sqlite_database: Database, tmp_path: Path
) -> None:
    """SQLite runs a trigger whatever it is called, also by a name that is for its own tables."""
    file = backed_up(sqlite_database, tmp_path)
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript(
            "CREATE TRIGGER quiet AFTER INSERT ON approvals BEGIN DELETE FROM approvals; END;"
            "PRAGMA writable_schema = 1;"
            "UPDATE sqlite_master SET name = 'sqlite_quiet', sql = replace(sql, 'quiet', 'sqlite_quiet')"
            " WHERE name = 'quiet'"
        )
    with pytest.raises(StoreError, match="trigger sqlite_quiet of approvals; nothing was"):
        restore.restore(sqlite_database, file)


@pytest.mark.parametrize("revision", [RELEASED[0], RELEASED[-1]])
def test_a_backup_of_an_earlier_version_is_restored(revision: str, tmp_path: Path) -> None:
    """Its upgraded schema is exactly that of a new database."""
    thaw_sqlite(revision, tmp_path / "old.db")
    restored = restore.restore(Database(f"sqlite:///{tmp_path / 'new.db'}"), tmp_path / "old.db")
    assert restored.contents.schema == revision


def test_rules_of_others_on_postgresql_are_found(postgres_url: str) -> None:
    """`pg_restore` restores triggers, rules and policies too: `agent db check` reports them."""
    database = Database(postgres_url)
    assert migrate.foreign_objects(database) == []
    with database.connect("writer") as connection:
        connection.execute("CREATE RULE quiet AS ON DELETE TO approvals DO INSTEAD NOTHING")
    assert migrate.foreign_objects(database) == ["rule quiet of approvals"]


def test_the_log_of_a_deleted_database_is_kept_and_not_applied(
    sqlite_database: Database, tmp_path: Path
) -> None:
    """The restored file is used at once, without the log that the deleted one has left."""
    file, path = backed_up(sqlite_database, tmp_path), sqlite_database.path
    assert path is not None
    log = path.with_name(f"{path.name}-wal")
    with sqlite_database.connect("reader") as connection:
        connection.query("SELECT id FROM tasks")
        outages.record(sqlite_database, "noted", {})
        left = log.read_bytes()
    path.unlink()
    log.write_bytes(left)
    restored = restore.restore(Database(sqlite_database.url), file)
    assert restored.replaced is None
    assert [kept.read_bytes() for kept in path.parent.glob("*.replaced-*-wal")] == [left]
    migrate.check(Database(sqlite_database.url))


def test_a_backup_that_cannot_be_used_changes_nothing(
    sqlite_database: Database, tmp_path: Path
) -> None:
    """A damaged file, and one of a newer version, are refused before anything is moved."""
    task_id = submitted(sqlite_database, graph(step("one")))
    damaged = tmp_path / "damaged.db"
    damaged.write_bytes(b"no database at all" * 1000)
    newer = backed_up(sqlite_database, tmp_path)
    set_revision(Database(f"sqlite:///{newer}"), "9999")
    for file, message in (
        (damaged, "not a database of an agent"),
        (newer, "newer than this version"),
    ):
        with pytest.raises(StoreError, match=message):
            restore.restore(sqlite_database, file)
    with sqlite_database.connect("reader") as connection:
        assert connection.query("SELECT id FROM tasks") == [(task_id,)]
    assert list(tmp_path.glob("*.replaced*")) == []


def test_an_older_backup_is_upgraded_in_its_copy(
    sqlite_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file itself stays as it is: the version that made it can still use it."""
    copy = backed_up(sqlite_database, tmp_path)
    before = copy.read_bytes()
    upgraded: list[str] = []
    upgrade = migrate.upgrade

    def note(database: Database) -> None:
        assert database.path is not None
        upgraded.append(database.path.name)
        upgrade(database)

    monkeypatch.setattr(migrate, "upgrade", note)
    restore.restore(sqlite_database, copy)
    assert upgraded[0] == "agent.db.restoring"
    assert copy.read_bytes() == before


def test_a_running_command_notices_the_replacement(
    sqlite_database: Database, tmp_path: Path
) -> None:
    """A connection from before writes nothing to the file that was replaced."""
    copy = backed_up(sqlite_database, tmp_path)
    with sqlite_database.connect("writer") as connection:
        restore.restore(Database(sqlite_database.url), copy)
        with pytest.raises(StoreError) as caught:
            connection.check()
        assert caught.value.fault is Fault.REPLACED
