"""`init`, `doctor`, `db`, `validate` and `schema`: what surrounds the running of tasks."""

import json
import re
from collections.abc import Iterator
from datetime import datetime

import pytest

from agent.cli.commands.doctor_checks.deep_check import DeepCheck
from agent.cli.commands.tasks import instant_of
from agent.core.clock import SECOND
from agent.core.files.process_lock import Lock
from agent.store.db.database import Connection, Database
from agent.store.db.sqlite_driver import driver
from agent.store.read.audit import rows as audit_rows
from agent.store.read.audit import task_reads as audit_reads
from tests.support.cli import Cli
from tests.support.rows import insert_task

GOOD = """\
name: good
on: {schedule: [{cron: "0 8 * * 1-5"}]}
steps:
  one: {shell: {argv: [echo, one], effect: none}}
"""

LARGE = """\
name: large
steps:
  one: {shell: {argv: [seq, "50000"], effect: none}}
"""

BAD = """\
name: bad
steps:
  one: {shel: {argv: [echo]}}
  two: {depends_on: [thre], shell: {argv: [echo]}}
  three: {shell: {argv: [echo]}}
"""


def test_a_workflow_runs_right_after_init(cli: Cli) -> None:
    """A second `init` overwrites nothing."""
    assert "agent run hello" in cli("init").out
    assert cli("run", "hello", "-i", "name=you", "--json").json["output"].startswith("hello, you")
    (cli.directory / "config.toml").write_text("[engine]\nslots = 3\n")
    assert cli("init", "--json").json["made"] == []
    assert (cli.directory / "config.toml").read_text() == "[engine]\nslots = 3\n"
    assert (cli.directory / "data").stat().st_mode & 0o077 == 0
    elsewhere = cli("init", "some/where", "--json").json
    # The configuration, the first workflow and the schema for editors.
    assert len(elsewhere["made"]) == 3
    assert (cli.directory / "some/where/data/agent.db").exists()


def test_validate_says_everything_at_once(cli: Cli) -> None:
    """All problems come with their lines, for people and for programs, and decide the exit code."""
    cli.write("good.yaml", GOOD)
    cli.write("bad.yaml", BAD)
    result = cli("validate", "good.yaml")
    assert "good" in result.out
    assert "an id would keep its history when its times are edited" in result.out
    result = cli("validate", "good.yaml", "bad.yaml", "gone.yaml", code=2)
    assert "bad.yaml:3" in result.out
    assert "did you mean 'shell'" in result.out
    assert "bad.yaml:4" in result.out
    assert "did you mean 'three'" in result.out
    assert "no such file" in result.out
    document = cli("validate", "good.yaml", "bad.yaml", "--json", code=2).json
    assert document["ok"] is False
    assert [entry["ok"] for entry in document["files"]] == [True, False]
    lines = [problem["line"] for problem in document["files"][1]["problems"]]
    assert lines == [3, 4]


def test_validate_shows_when_schedules_run_next(cli: Cli) -> None:
    """Five instants in the zone of each schedule, how far away they are, and remarks."""
    cli.write(
        "timed.yaml",
        "name: timed\nsteps: {a: {wait: 1ms}}\non:\n"
        "  schedule: {cron: '30 2 * * *', timezone: Europe/Berlin, jitter: 5m}\n"
        "  watch: {id: news, feed: 'https://example.com/x.xml'}\n",
    )
    lines = cli("validate", "timed.yaml").out.splitlines()
    assert lines[1] == "  schedule 30 2 * * * (Europe/Berlin, each up to 5m later)"
    instant = re.compile(r"    \w{3} \d{4}-\d\d-\d\d 0[23]:\d\d:00\+0[12]:00  in \d+ ")
    assert len([line for line in lines if instant.match(line)]) == 5
    assert [line for line in lines if "does not exist in Europe/Berlin" in line]
    (document,) = cli("validate", "timed.yaml", "--json").json["files"]
    schedule, watcher = document["triggers"]
    assert schedule["trigger"].startswith("timed:schedule-")
    assert schedule["timezone"] == "Europe/Berlin"
    assert len(schedule["next"]) == 5
    assert 0 < schedule["next"][0]["in_seconds"] < 26 * 3600
    instants = [datetime.fromisoformat(instant["at"]) for instant in schedule["next"]]
    assert instants == [datetime.fromisoformat(instant["local"]) for instant in schedule["next"]]
    assert instants == sorted(instants)
    assert "an id would keep its history when its times are edited" in schedule["remarks"]
    assert watcher == {"trigger": "timed:news", "kind": "watch", "remarks": []}


def test_validate_runs_nothing_unless_it_is_trusted(cli: Cli) -> None:
    """Neither a workflow in Python nor the modules of steps; `--trust` allows the former."""
    ran = cli.directory / "ran"
    cli.write("mine.py", f"open({str(ran)!r}, 'a').close()\n\ndef check(): ...\n")
    cli.write("calls.yaml", "name: calls\nsteps:\n  a: {python: {call: 'mine:check'}}\n")
    cli("validate", "calls.yaml")
    graph = {
        "name": "built",
        "steps": [{"name": "a", "kind": "wait", "config": {"duration": "1s"}}],
    }
    cli.write("built.py", f"open({str(ran)!r}, 'a').close()\ngraph = {graph!r}\n")
    refused = cli("validate", "built.py", code=2)
    assert "not checked: to check a workflow in Python, its file is run" in refused.out
    assert "read it, then add --trust" in refused.out
    (document,) = cli("validate", "built.py", "--json", code=2).json["files"]
    assert document["ok"] is False
    assert not ran.exists()
    assert "built, 1 step" in cli("validate", "built.py", "--trust").out
    assert ran.exists()


def test_validate_checks_the_workflow_directory_by_default(cli: Cli) -> None:
    """An empty one is an error."""
    assert "there are no workflow files" in cli("validate", code=2).err
    cli.write("workflows/good.yaml", GOOD)
    assert cli("validate", "--json").json["ok"] is True


def test_schema_is_a_json_schema(cli: Cli) -> None:
    """Editors get one document that knows the step kinds."""
    document = cli("schema").json
    assert "$schema" in document
    assert "shell" in json.dumps(document)


def test_backup_and_prune(cli: Cli) -> None:
    """A backup is a whole database; pruning removes ended tasks and only those."""
    cli.write("good.yaml", GOOD)
    cli("run", "good.yaml", "--json")
    kept = cli("run", "good.yaml", "--detach", "--json").json["id"]
    copy = cli.directory / "copy.db"
    assert cli("db", "backup", "copy.db", "--json").json["bytes"] == copy.stat().st_size
    assert "exists already" in cli("db", "backup", "copy.db", code=3).err
    assert "no such directory" in cli("db", "backup", "no/where.db", code=2).err
    assert cli("db", "prune", "--json").json["tasks"] == 0
    would = cli("db", "prune", "--days", "0", "--dry-run", "--json").json
    assert (would["tasks"], would["dry_run"]) == (1, True)
    assert "would remove" in cli("db", "prune", "--days", "0", "--dry-run").out
    assert "leave out --dry-run" in cli("db", "prune", "--dry-run", "--vacuum", code=2).err
    assert cli("db", "prune", "--days", "0", "--json").json["tasks"] == 1
    assert [task["id"] for task in cli("tasks", "--json").json] == [kept]
    assert "0 idempotency keys" in cli("db", "prune").out
    restored = Cli(cli.directory, AGENT_DATABASE__URL="sqlite:///copy.db")
    assert len(restored("tasks", "--json").json) == 2
    assert "schema" in cli("db", "upgrade").out


def test_prune_says_what_it_keeps_and_gives_back(cli: Cli) -> None:
    """Large values stay for a day; a file of an earlier version is rewritten while no agent runs."""
    cli.write("large.yaml", LARGE)
    cli("run", "large.yaml", "--json")
    path = cli.directory / "data" / "agent.db"
    raw = driver().module.connect(str(path), isolation_level=None)
    raw.execute("PRAGMA auto_vacuum = NONE")
    raw.execute("VACUUM")
    raw.close()
    done = cli("db", "prune", "--days", "0", "--json").json
    assert (done["tasks"], done["artifacts"]) == (1, 0)
    assert (done["kept"]["tasks"], done["kept"]["artifacts"]) == (0, 1)
    assert done["kept"]["artifact_bytes"] > 200_000
    assert done["free_bytes"] > 0
    shown = cli("db", "prune", "--days", "0").out
    assert "kept 1 large values" in shown
    assert "db prune --vacuum" in shown
    with Lock(path) as lock:
        assert lock.acquire("daemon")
        assert "already running" in cli("db", "prune", "--vacuum", code=3).err
    again = cli("db", "prune", "--vacuum", "--json").json
    assert (again["bytes_freed"] > 0, again["free_bytes"]) == (True, 0)
    assert "bytes of disk" in cli("db", "prune").out


def test_doctor_reads_what_has_changed_since(cli: Cli) -> None:
    """A duration or an instant; the summary names what was skipped."""
    cli.write("good.yaml", GOOD)
    cli("run", "good.yaml", "--json")
    assert "1 tasks that had not ended before" in cli("doctor", "--deep", "--since", "2d").out
    shown = cli("doctor", "--deep", "--since", "2100-01-31T08:00", "--json").json["findings"]
    text = "the 0 tasks that had not ended before 2100-01-31T08:00:00Z"
    assert any(text in finding["message"] for finding in shown)
    assert "2h or 7d" in cli("doctor", "--deep", "--since", "lately", code=2).err
    assert "needs --deep" in cli("doctor", "--since", "2d", code=2).err


def test_an_interrupted_doctor_says_where_to_go_on(
    database: Database, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What it names reads all that was not read, whenever that was created."""
    with database.connect("writer") as connection:
        for second in range(6):
            at = (1_800_000_000 + second) * SECOND
            insert_task(connection, f"t{second}", created_at=at, ended_at=at + 1)

    def interrupted(reader: Connection, since: int | None) -> Iterator[audit_rows.AuditRows]:
        for count, task in enumerate(collect(reader, since)):
            if count == 3:
                raise KeyboardInterrupt
            yield task

    collect = audit_reads.collect
    monkeypatch.setattr(audit_reads, "collect", interrupted)
    with database.connect("reader") as reader:
        with pytest.raises(KeyboardInterrupt):
            list(DeepCheck().results(reader))
        notes = capsys.readouterr().err
        assert "3 of 6 tasks were checked" in notes
        since = instant_of(notes.partition("--since ")[2].strip(" `\n"))
        assert since == (1_800_000_000 + 2) * SECOND
        assert [task.task.id for task in collect(reader, since)] == ["t2", "t3", "t4", "t5"]


def test_doctor_tells_what_is_wrong(cli: Cli) -> None:
    """A healthy place is exit code 0; no database, broken workflows and damage have codes of their own."""
    result = cli("doctor", code=5)
    assert "agent init" in result.out
    cli("init")
    assert cli("doctor", "--deep", "--json").json["ok"] is True
    assert "no agent is running" in cli("doctor").out
    cli.write("workflows/bad.yaml", BAD)
    document = cli("doctor", "--json", code=3).json
    assert document["ok"] is False
    assert any("bad.yaml:3" in finding["message"] for finding in document["findings"])


def test_an_unusable_artifact_store_is_reported(cli: Cli) -> None:
    """Doctor reports it, and no daemon starts that would store its large values elsewhere."""
    cli("init")
    cli.write("config.toml", '[artifacts]\nurl = "gcs://bucket"\n')
    found = cli("doctor", "--json", code=3).json["findings"]
    (artifacts,) = [each for each in found if each["what"] == "artifacts"]
    assert (artifacts["state"], "gcs" in artifacts["message"]) == ("error", True)
    assert "artifacts cannot be kept at gcs://bucket" in cli("run", "hello", code=5).err
    cli.write("config.toml", '[artifacts]\nurl = "kept"\n')
    assert "artifacts: stored at" in cli("doctor").out


def test_doctor_reads_the_whole_database(cli: Cli) -> None:
    """`--deep` names the task and the step of what is not as it should be; the exit code says so."""
    cli("init")
    task_id = cli("run", "hello", "--wait", "--json").json["id"]
    assert "checked everything (1 tasks)" in cli("doctor", "--deep").out
    raw = driver().module.connect(str(cli.directory / "data" / "agent.db"))
    raw.execute("UPDATE steps SET attempt = 7")
    raw.commit()
    raw.close()
    shown = cli("doctor", "--deep", code=3).out
    assert f"task {task_id[-8:]}: step " in shown and "is at attempt 7" in shown
    found = cli("doctor", "--deep", "--json", code=3).json["findings"]
    assert any(each["task"] == task_id and each["step"] for each in found)


def test_version(cli: Cli) -> None:
    """The version is one line, or one document."""
    assert cli("version").out.startswith("agent ")
    assert cli("version", "--json").json["version"]
