"""The command line on PostgreSQL: a daemon, a second worker, and commands beside them."""

import signal
import subprocess
import time
from pathlib import Path

import pytest

from agent.store.db.database import Database
from tests.support.cli import PATIENCE_SECONDS, PROGRAM, Cli
from tests.support.engine import eventually
from tests.support.webhook_receiver import SECRET, receiving
from tests.upgrade.revisions import set_revision

QUICK = """\
name: quick
steps:
  one: {shell: {argv: [echo, one], effect: none}}
  two: {depends_on: [one], shell: {argv: [echo, two], effect: none}}
"""


@pytest.fixture
def pg(tmp_path: Path, empty_postgres_url: str) -> Cli:
    """Return the command line with a PostgreSQL database that has no tables yet."""
    return Cli(tmp_path, AGENT_DATABASE__URL=empty_postgres_url)


def test_run_without_a_daemon(pg: Cli) -> None:
    """The command makes the tables and runs its task by itself, as on SQLite."""
    pg.write("quick.yaml", QUICK)
    assert "no tables" in pg("tasks", code=5).err
    assert pg("run", "quick.yaml", "--json").json["status"] == "succeeded"
    assert len(pg("tasks", "--json").json) == 1
    # An event shows when no transaction before it is open, another database's included.
    assert eventually(lambda: pg("events", "--json").json["events"])[0]["type"]
    assert pg("doctor", "--deep", "--json").json["ok"] is True
    assert pg("db", "prune", "--days", "0", "--json").json["tasks"] == 1
    assert [file.name for file in (pg.directory / "data").iterdir()] == ["audit.jsonl"]


def test_a_database_that_may_only_be_read(pg: Cli, empty_postgres_url: str) -> None:
    """Looking works, doctor warns, and whatever would write says why it does not."""
    pg("db", "upgrade")
    pg.write("quick.yaml", QUICK)
    with Database(empty_postgres_url).connect() as connection:
        ((name,),) = connection.query("SELECT current_database()")
        connection.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
    assert pg("tasks", "--json").json == []
    for command in (["up"], ["worker"], ["run", "quick.yaml"]):
        assert "read-only" in pg(*command, code=5).err
    findings = pg("doctor", "--json", code=5).json["findings"]
    (wrong,) = [found for found in findings if found["state"] == "error"]
    assert (wrong["what"], "read-only" in wrong["message"]) == ("database", True)


def test_a_database_of_a_newer_agent(pg: Cli, empty_postgres_url: str) -> None:
    """It is left alone by every command, with one message and the exit code for no database."""
    pg("db", "upgrade")
    set_revision(Database(empty_postgres_url), "9999")
    for command in (["tasks"], ["up"], ["worker"], ["db", "upgrade"], ["db", "prune"]):
        assert "newer than this version" in pg(*command, code=5).err


@pytest.mark.process
def test_the_first_notice_after_a_kill_comes_at_once(pg: Cli) -> None:
    """The channel's lease belongs to a process that has ended: the next one need not wait for it."""
    pg.write("ask.yaml", "name: ask\nsteps: {ask: {approval: {message: Go on?}}}")
    with receiving() as receiver:
        pg.environment |= {
            "AGENT_CHANNELS__WEBHOOK__URL": receiver.url,
            "AGENT_CHANNELS__WEBHOOK__SECRET": "env:HOOK",
            "AGENT_SERVER__ENABLED": "false",
            "HOOK": SECRET,
        }
        with pg.daemon() as first:
            eventually(lambda: pg.run_any("status").code == 0)
            pg("run", "ask.yaml")
            eventually(lambda: len(receiver.taken) == 1)
            first.kill()
            first.wait()
        with pg.daemon():
            eventually(lambda: pg.run_any("status").code == 0)
            started = time.monotonic()
            pg("run", "ask.yaml")
            # The kill may have come before the first one was recorded: then it comes once more.
            eventually(lambda: len(set(receiver.ids)) == 2)
            assert time.monotonic() - started < 5.0


@pytest.mark.process
def test_a_daemon_and_a_worker_share_the_tasks(pg: Cli) -> None:
    """`agent worker` runs beside `agent up`; when the one ends, the other goes on."""
    pg.write("quick.yaml", QUICK)
    with pg.daemon() as first:
        worker = subprocess.Popen(
            [*PROGRAM, "worker"],
            cwd=pg.directory,
            env=pg.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        with worker:
            assert worker.stdout is not None
            assert "agent worker" in worker.stdout.readline()
            assert "queued task" in pg("run", "quick.yaml").out
            assert pg("run", "quick.yaml", "--wait", "--json").json["status"] == "succeeded"
            first.send_signal(signal.SIGTERM)
            assert first.wait(PATIENCE_SECONDS) == 0
            assert pg("run", "quick.yaml", "--wait", "--json").json["status"] == "succeeded"
            worker.send_signal(signal.SIGTERM)
            assert worker.wait(PATIENCE_SECONDS) == 0
        pg.wait_for(lambda: len(pg("tasks", "--status", "succeeded", "--json").json) == 3)
