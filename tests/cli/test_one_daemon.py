"""One daemon on one SQLite file, whatever name leads to it; and none on a file that is gone."""

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from tests.support.cli import PATIENCE_SECONDS, Cli

pytestmark = pytest.mark.process

SLEEPER = """\
name: sleeper
steps: {sleep: {shell: {argv: [sleep, "600"], effect: none}}}
"""


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    """Return the command line in a directory with a workflow."""
    cli = Cli(tmp_path, AGENT_SERVER__PORT="0")
    cli.write("workflows/sleeper.yaml", SLEEPER)
    cli.write("workflows/quick.yaml", "name: quick\nsteps: {one: {wait: 1ms}}\n")
    return cli


@pytest.mark.parametrize("how", ["symlink", "hard link", "no lock file"])
def test_a_second_daemon_is_refused(cli: Cli, how: str) -> None:
    """It starts nothing, ends nothing, and says why; the first one's command goes on."""
    database = cli.directory / "data" / "agent.db"
    link = cli.directory / "link.db"
    with cli.daemon():
        task_id = cli("run", "sleeper", "--detach", "--json").json["id"]
        cli.wait_for(lambda: cli.task(task_id)["steps"][0]["status"] == "running")
        second = Cli(cli.directory, AGENT_SERVER__PORT="0")
        if how == "no lock file":
            database.with_name("agent.db.lock").unlink()
        else:
            (link.symlink_to if how == "symlink" else link.hardlink_to)(database)
            second.environment["AGENT_DATABASE__URL"] = "sqlite:///link.db"
        refused = second("up", code=5 if how == "hard link" else 3)
        assert "agent is" in refused.err
        link.unlink(missing_ok=True)
        step = cli.task(task_id)["steps"][0]
        assert (step["status"], step["attempt"]) == ("running", 1)
        cli("cancel", task_id)


def test_databases_in_one_directory_have_daemons_of_their_own(cli: Cli) -> None:
    """`agent.db` and `agent.sqlite` are two databases."""
    other = Cli(cli.directory, AGENT_SERVER__PORT="0")
    other.environment["AGENT_DATABASE__URL"] = "sqlite:///data/agent.sqlite"
    with cli.daemon(), other.daemon():
        for each in (cli, other):
            each("run", "quick", "--wait")


def delete(path: Path) -> None:
    """Remove the database."""
    path.unlink()


def delete_log(path: Path) -> None:
    """Remove its write-ahead log."""
    path.with_name("agent.db-wal").unlink()


@pytest.mark.parametrize("harm", [delete, delete_log])
def test_a_daemon_whose_database_is_gone_stops(cli: Cli, harm: Callable[[Path], None]) -> None:
    """Within a second it is no longer ready, acknowledges nothing more, and ends with a message."""
    with cli.daemon() as process:
        log = cli.directory / "daemon.log"
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        url = next(line for line in lines if line.startswith("HTTP API: ")).split()[2]
        token = (cli.directory / "data" / "token").read_text().strip()
        client = httpx.Client(
            base_url=url.removesuffix("/api/v1"),
            headers={"Authorization": f"Bearer {token}"},
            trust_env=False,
        )
        cli.wait_for(lambda: client.get("/readyz").status_code == 200)
        harm(cli.directory / "data" / "agent.db")
        time.sleep(1)
        asked: list[Callable[[], httpx.Response]] = [
            lambda: client.get("/readyz"),
            lambda: client.post("/api/v1/workflows/quick/tasks", json={}),
        ]
        for ask in asked:
            try:
                assert ask().status_code == 503
            except httpx.TransportError:
                # It has stopped already.
                continue
        try:
            assert process.wait(PATIENCE_SECONDS) == 5
        except subprocess.TimeoutExpired:
            pytest.fail("it goes on without its database")
        assert "was deleted, moved or replaced" in log.read_text()
