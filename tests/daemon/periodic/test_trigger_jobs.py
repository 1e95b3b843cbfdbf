"""A real daemon starts tasks by itself: on schedule, for a new file, and for what it missed."""

import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import Cli

pytestmark = pytest.mark.process

FLOW = """\
name: flow
on:
  schedule:
    - {{id: beat, every: {every}, catch_up: {catch_up}, inputs: {{what: "{{{{ trigger.scheduled_for }}}}"}}}}
  watch:
    - {{id: inbox, every: 10m, path: {{path: inbox, quiet: 50ms}}, inputs: {{what: "{{{{ trigger.item.name }}}}"}}}}
inputs: {{what: {{type: string, default: none}}}}
steps: {{show: {{shell: {{argv: [echo, "{{{{ inputs.what }}}}"], effect: none}}}}}}
"""


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    """Return the command line in a directory with a workflow that has triggers."""
    cli = Cli(tmp_path, AGENT_SERVER__PORT="0")
    cli.write("workflows/inbox/before.txt", "there before the watcher")
    return cli


def _write(cli: Cli, every: str, catch_up: str = "latest") -> None:
    cli.write("workflows/flow.yaml", FLOW.format(every=every, catch_up=catch_up))


def _rows(cli: Cli, query: str) -> list[tuple[Any, ...]]:
    path = cli.directory / "data" / "agent.db"
    if not path.exists():
        return []
    with sqlite3.connect(path) as connection:
        try:
            return connection.execute(query).fetchall()
        except sqlite3.OperationalError:
            return []


def _firings(cli: Cli, trigger: str) -> list[tuple[Any, ...]]:
    return _rows(
        cli,
        "SELECT key, status, task_id, nominal_at, count, until_at FROM firings"
        f" WHERE trigger_id = '{trigger}' ORDER BY recorded_at, nominal_at",
    )


def test_schedules_and_watchers_fire_in_a_daemon(cli: Cli) -> None:
    """A new file starts a task long before the next poll; each instant has one task."""
    _write(cli, "500ms")
    with cli.daemon():
        cli.wait_for(lambda: len(_firings(cli, "flow:beat")) >= 3)
        cli.wait_for(lambda: _firings(cli, "flow:inbox"))
        cli.write("workflows/inbox/new.txt", "new")
        cli.wait_for(lambda: len(_firings(cli, "flow:inbox")) == 2)
        statuses = [status for _, status, *_ in _firings(cli, "flow:inbox")]
        assert statuses == ["baseline", "started"]
        # An edited file takes effect without a restart, and an instant of the old times is settled.
        _write(cli, "10m")
        cli.wait_for(
            lambda: '"every_seconds":600.0' in _rows(cli, "SELECT spec FROM triggers")[0][0]
        )
        cli.wait_for(lambda: not cli("tasks", "--status", "running", "--json").json)
    tasks = dict(_rows(cli, "SELECT id, status FROM tasks"))
    started = [task for _, _, task, *_ in _firings(cli, "flow:beat") if task is not None]
    assert len(started) == len(set(started))
    assert all(tasks[task] == "succeeded" for task in started)
    assert len(tasks) == len(started) + 1


def test_what_a_killed_daemon_missed_is_recorded(cli: Cli) -> None:
    """After SIGKILL the next start gives every instant in between one fate."""
    _write(cli, "200ms", catch_up="none")
    with cli.daemon() as daemon:
        cli.wait_for(lambda: len(_firings(cli, "flow:beat")) >= 2)
        daemon.kill()
        daemon.wait(10)
    killed_at = time.time()
    before = len(_firings(cli, "flow:beat"))
    with cli.daemon():
        cli.wait_for(lambda: len(_firings(cli, "flow:beat")) >= before + 2)
    nominals: list[int] = []
    for _, _, task, nominal, count, until in _firings(cli, "flow:beat"):
        assert until is None or task is None
        steps = range(nominal, (until or nominal) + 1, 200_000)
        assert count is None or count == len(steps)
        nominals += steps
    assert nominals == sorted(set(nominals)), "an instant has two fates"
    assert nominals == list(range(nominals[0], nominals[-1] + 1, 200_000)), "one has none"
    assert nominals[-1] > killed_at * 1_000_000


HANGING = """\
name: hanging
on:
  watch:
    - {id: it, every: 1h, timeout: 10m, command: [sh, -c, "echo >> polls; test -e go || exec sleep 600"]}
steps: {rest: {wait: 1s}}
"""


def test_a_poll_of_a_killed_agent_is_free_for_the_next_one(
    postgres_url: str, tmp_path: Path
) -> None:
    """On PostgreSQL its lease lasts longer than the timeout of the poll: the next agent does not wait for it."""
    cli = Cli(tmp_path, AGENT_DATABASE__URL=postgres_url, AGENT_SERVER__PORT="0")
    cli.write("workflows/hanging.yaml", HANGING)
    polls = tmp_path / "workflows" / "polls"
    with cli.daemon() as daemon:
        cli.wait_for(polls.exists)
        daemon.kill()
        daemon.wait(10)
    cli.write("workflows/go", "")
    with cli.daemon():
        cli.wait_for(lambda: len(polls.read_text().splitlines()) == 2)
        cli.wait_for(lambda: cli("watchers", "--json").json[0]["polls"] == 1)
