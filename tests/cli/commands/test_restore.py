"""`agent db restore` and `agent db check`: what a person sees and must decide."""

from pathlib import Path

from agent.core.files.process_lock import Lock
from tests.support.cli import Cli

WAITING = """\
name: waiting
on: {schedule: [{id: night, cron: "0 2 * * *"}]}
steps:
  go: {wait: {signal: go}}
  pay: {depends_on: [go], shell: {argv: [touch, paid], effect: none}}
"""


def started(cli: Cli) -> tuple[str, Path]:
    """Start a task that waits, write a backup, and return the task's id and the backup."""
    cli("init")
    cli.write("workflows/waiting.yaml", WAITING)
    task_id = cli("run", "waiting", "--detach", "--json").json["id"]
    cli("db", "backup", "copy.db")
    return str(task_id), cli.directory / "copy.db"


def test_a_restored_task_is_held_until_it_is_released(cli: Cli) -> None:
    """Restore says what is held; check lists it, doctor warns, and a release resumes it."""
    task_id, copy = started(cli)
    cli("cancel", task_id)
    result = cli("db", "restore", str(copy))
    assert "agent.db.replaced-" in result.out
    assert "pay (shell)" in result.out
    assert "go (wait)" not in result.out
    assert cli("show", task_id, "--json").json["pause_kind"] == "restore"
    held = cli("db", "check", "--json").json["held"]
    assert [task["id"] for task in held["tasks"]] == [task_id]
    assert "paused since a restore" in cli("doctor").out
    assert cli("db", "check", "--release", "--json").json["released"] == held
    assert cli("show", task_id, "--json").json["status"] == "running"
    assert "no task and no trigger is held" in cli("db", "check").out


def test_a_restore_is_refused_while_an_agent_runs(cli: Cli) -> None:
    """Its worker would go on in the old file."""
    _, copy = started(cli)
    with Lock(cli.directory / "data" / "agent.db") as lock:
        assert lock.acquire("daemon")
        assert "stop it first" in cli("db", "restore", str(copy), code=3).err
        assert "stop it first" in cli("db", "check", "--hold", code=3).err


def test_mistakes_are_explained(cli: Cli) -> None:
    """A missing file, a file of another kind, and the database itself change nothing."""
    task_id, _ = started(cli)
    cli.write("letter.txt", "no database\n" * 500)
    assert "there is no file" in cli("db", "restore", "none.db", code=5).err
    assert "not a database of an agent" in cli("db", "restore", "letter.txt", code=5).err
    assert "is the database itself" in cli("db", "restore", "data/agent.db", code=2).err
    assert "contradict" in cli("db", "check", "--hold", "--release", code=2).err
    assert cli("show", task_id, "--json").json["status"] == "running"


def test_hold_pauses_what_is_open(cli: Cli) -> None:
    """For databases that were restored by other means, as by pg_restore."""
    task_id, _ = started(cli)
    held = cli("db", "check", "--hold", "--json").json["held"]
    assert [task["id"] for task in held["tasks"]] == [task_id]
    assert cli("show", task_id, "--json").json["pause_kind"] == "restore"


def test_backups_are_listed_newest_first(cli: Cli) -> None:
    """With their age and size; copies from before upgrades are marked."""
    cli("init")
    assert "there are no backups" in cli("db", "backups").out
    directory = cli.directory / "data" / "backups"
    directory.mkdir()
    for name in ("agent-20260101T000000Z.db", "agent-20260102T000000Z-before-0009.db", "other.db"):
        (directory / name).write_bytes(b"x" * 1234)
    listed = cli("db", "backups", "--json").json
    assert [(each["made_at"][:10], each["before_upgrade"]) for each in listed] == [
        ("2026-01-02", True),
        ("2026-01-01", False),
    ]
    assert "1,234" in cli("db", "backups").out
