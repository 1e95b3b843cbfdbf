"""`agent queue`: queues and dead letters, of the local database and of a remote agent."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.queue import Final, Work, Worker, handler
from tests.support.cli import Cli

FLOW = """\
name: flow
inputs: {text: {type: string, default: a}}
steps:
  job:
    worker: {queue: jobs, with: {text: "{{ inputs.text }}"}}
    retry: {max_attempts: 1}
"""
WAITING = """\
name: waiting
steps: {other: {worker: {queue: others}}}
"""

pytestmark = pytest.mark.process


@handler("jobs")
def fail(work: Work) -> None:
    """Fail for good."""
    raise Final(f"cannot read {work.input['text']}", code="unreadable")


@pytest.fixture(scope="module")
def cli(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    """Return the command line beside a daemon whose queue `jobs` has two dead letters."""
    cli = Cli(tmp_path_factory.mktemp("queue"), AGENT_SERVER__PORT="0")
    cli("init")
    cli.write("flow.yaml", FLOW)
    cli.write("waiting.yaml", WAITING)
    with cli.daemon():
        cli("run", "--detach", "waiting.yaml")
        for text in ("one", "two"):
            cli("run", "--detach", "flow.yaml", "-i", f"text={text}")
        instance = json.loads((cli.directory / "data" / "daemon.json").read_text())
        token = (cli.directory / "data" / "token").read_text().strip()
        Worker(fail, server=instance["api"], token=token).run(limit=2)
        cli.environment["AGENT_TEST_URL"] = instance["api"]
        yield cli


@pytest.fixture(params=["local", "remote"])
def there(request: pytest.FixtureRequest, cli: Cli) -> list[str]:
    """Return the global options: for the database here, or the same agent over HTTP."""
    return [] if request.param == "local" else ["--server", cli.environment["AGENT_TEST_URL"]]


def test_queues_are_listed(cli: Cli, there: list[str]) -> None:
    """Each with what waits and its dead letters."""
    queues = {each["queue"]: each for each in cli(*there, "queue", "list", "--json").json}
    assert queues["others"]["queued"] == 1
    assert queues["jobs"]["dead"] == 2
    table = cli(*there, "queue").out
    assert "others" in table
    assert "ago" in table or "just now" in table


def test_dead_letters_are_listed_by_queue_and_error(cli: Cli, there: list[str]) -> None:
    """Filters select; the count groups."""
    letters = cli(*there, "queue", "dead", "--json").json
    assert {letter["error"]["message"] for letter in letters} == {
        "cannot read one",
        "cannot read two",
    }
    assert cli(*there, "queue", "dead", "--queue", "others", "--json").json == []
    assert cli(*there, "queue", "dead", "--error", "heartbeat_timeout", "--json").json == []
    assert len(cli(*there, "queue", "dead", "--error", "unreadable", "-n", "1", "--json").json) == 1
    counts = cli(*there, "queue", "dead", "--count", "--json").json
    assert counts == [{"queue": "jobs", "error": "unreadable", "count": 2}]
    assert "cannot read one" in cli(*there, "queue", "dead").out


def test_a_requeue_must_say_which(cli: Cli, there: list[str]) -> None:
    """Neither ids nor --all is an error, and so is both; a preview changes nothing."""
    assert "--all" in cli(*there, "queue", "requeue", code=2).err
    assert "--all" in cli(*there, "queue", "requeue", "abc", "--all", code=2).err
    assert "no dead letter" in cli(*there, "queue", "requeue", "abcdef", code=3).err
    assert "cannot read one" in cli(*there, "queue", "requeue", "--all", "--dry-run").out
    assert len(cli("queue", "dead", "--json").json) == 2


def test_dead_letters_are_put_back(cli: Cli, tmp_path: Path) -> None:
    """Each becomes a retry of its task and leaves the list, locally and over HTTP."""
    first, second = cli("queue", "dead", "--json").json
    remote = ["--server", cli.environment["AGENT_TEST_URL"]]
    printed = cli("queue", "requeue", first["id"][-8:], "--reason", "mended").out
    assert "requeued job" in printed
    for options in ([], remote):
        assert "already requeued as task " in cli(*options, "queue", "requeue", first["id"]).out
        preview = cli(*options, "queue", "requeue", first["id"], "--dry-run", code=3)
        assert "there is no dead letter" in preview.err
        unknown = cli(*options, "queue", "requeue", f"{first['id'][:-8]}ffffffff", code=3)
        assert "there is no dead letter" in unknown.err
    again = cli(*remote, "queue", "requeue", "--all", "--not-before", "1h", "--json").json
    assert [letter["id"] for letter in again] == [second["id"]]
    assert cli("queue", "dead", "--json").json == []
    task = cli.task(again[0]["requeued_as"])
    assert task["retry_of"] == second["task"]
