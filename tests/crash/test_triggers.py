"""A daemon with a fast schedule and a watcher is killed: no instant and no item is lost or runs twice."""

import json
import random
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from agent.tasks import checker
from agent.triggers.schedules.fate_check import check_fates
from tests.crash.processes import Agents, agents, eventually
from tests.support.effort import short_or_full

pytestmark = [pytest.mark.process, pytest.mark.timeout(900)]

KILLS = short_or_full(5, 10)
WORKFLOW = """\
name: often
on:
  schedule:
    id: fast
    every: 200ms
    overlap: allow
  watch:
    id: lines
    command: [cat, lines.jsonl]
    every: 200ms
    first: all
inputs: {}
steps:
  work:
    wait: {duration: 1ms}
"""


def test_a_daemon_with_triggers_killed_again_and_again(sqlite_url: str, tmp_path: Path) -> None:
    """Whenever SIGKILL comes, each instant and each item has one fate and at most one task."""
    chance = random.Random(20261117)
    lines = tmp_path / "workflows" / "lines.jsonl"
    lines.parent.mkdir()
    lines.write_text("")
    (lines.parent / "often.yaml").write_text(WORKFLOW)
    with agents(tmp_path, sqlite_url) as those:
        for number in range(KILLS):
            daemon = those.start("up")
            with lines.open("a") as file:
                file.write(json.dumps({"key": f"line-{number}"}) + "\n")
            those.wait_until_alive(daemon)
            if number % 4 == 0:
                before = _count(those)
                eventually(lambda: _count(those) > before, those.describe)  # noqa: B023
            time.sleep(chance.uniform(0, 0.3))
            assert those.end(daemon, signal.SIGKILL) == -signal.SIGKILL
        daemon = those.start("up")
        # SIGTERM ends a process that has not begun to run tasks, as it ends any other.
        those.wait_until_alive(daemon)
        eventually(lambda: _fates_of_items(those) == KILLS, those.describe)
        assert those.end(daemon, signal.SIGTERM) == 0
        with those.database.connect("reader") as reader:
            assert checker.check(reader, further=[check_fates]) == []
        _check_tasks(those)


def _count(those: Agents) -> int:
    return int(those.rows("SELECT count(*) FROM firings")[0][0])


def _fates_of_items(those: Agents) -> int:
    found = those.rows("SELECT count(*) FROM firings WHERE trigger_id = 'often:lines'")
    return int(found[0][0])


def _check_tasks(those: Agents) -> None:
    """Check that each started firing has a task of its own, and each task a firing."""
    tasks = dict(those.rows("SELECT id, trigger FROM tasks"))
    started = [
        task_id
        for (task_id,) in those.rows("SELECT task_id FROM firings WHERE task_id IS NOT NULL")
    ]
    assert sorted(started) == sorted(tasks)
    contexts = [json.loads(trigger) for trigger in tasks.values()]
    instants = Counter(each["scheduled_for"] for each in contexts if each["kind"] == "schedule")
    items = Counter(each["item"]["key"] for each in contexts if each["kind"] == "watch")
    assert set(instants.values()) == {1}
    assert items == Counter(f"line-{number}" for number in range(KILLS))
