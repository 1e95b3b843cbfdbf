"""A step's code ends only its own step, whether it exits or crashes the whole daemon."""

import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from agent.workflows.graph import Graph, RetryPolicy, Step
from tests.crash.processes import Agents, agents, eventually
from tests.support.fork_server import ForkedProcess

pytestmark = [pytest.mark.process, pytest.mark.timeout(600)]


def _calling(name: str, function: str, given: Mapping[str, object], attempts: int) -> Graph:
    config = {"call": f"tests.crash.remote_steps:{function}", "with": given}
    policy = RetryPolicy(max_attempts=attempts, delay_seconds=0, jitter=False)
    step = Step(name=name, kind="python", config=config, retry=policy)
    return Graph(name=name, steps=[step])


def _error(those: Agents, task_id: str) -> str:
    ((error,),) = those.rows("SELECT error FROM steps WHERE task_id = :id", id=task_id)
    return str(error)


def _submit_held(those: Agents, gate: Path, attempts: int) -> str:
    """Start a step that waits for the gate, and wait until it runs."""
    given = {"gate": str(gate), "url": f"{those.world.url}/{{{{ task.id }}}}/held"}
    task_id = those.submit(_calling("held", "hold", given, attempts))
    _wait_until_running(those, task_id)
    return task_id


def _wait_until_running(those: Agents, task_id: str) -> None:
    running = "SELECT 1 FROM steps WHERE task_id = :id AND status = 'running'"
    eventually(lambda: those.rows(running, id=task_id), those.describe)


@pytest.mark.parametrize("function", ["leave", "leave_in_a_task", "cancel_all"])
def test_an_exit_ends_its_step_and_no_other(function: str, sqlite_url: str, tmp_path: Path) -> None:
    """The daemon goes on, and a parallel step with a single attempt keeps that attempt."""
    gate = tmp_path / "gate"
    with agents(tmp_path, sqlite_url) as those:
        daemon = those.start("up")
        those.wait_until_alive(daemon)
        held = _submit_held(those, gate, attempts=1)
        leaving = those.submit(_calling("leaving", function, {"code": 3}, attempts=2))
        eventually(lambda: those.are_ended([leaving]), those.describe)
        assert daemon.poll() is None, those.describe()
        assert f"tests.crash.remote_steps:{function} raised SystemExit(3)" in _error(those, leaving)
        gate.touch()
        eventually(lambda: those.are_ended([held]), those.describe)
        assert those.end(daemon, signal.SIGTERM) == 0
        assert those.rows("SELECT status, attempt FROM steps WHERE name = 'held'") == [
            ("succeeded", 1)
        ]
        assert dict(those.world.counts()) == {f"/{held}/held": 1}
        assert those.violations() == []


def test_a_step_that_crashes_the_daemon_is_named(sqlite_url: str, tmp_path: Path) -> None:
    """Beside other steps its attempt is only lost; isolated, its error names it as the cause."""
    gate = tmp_path / "gate"
    with agents(tmp_path, sqlite_url) as those:
        daemon = those.start("up")
        those.wait_until_alive(daemon)
        held = [_submit_held(those, gate, attempts=9) for _ in range(3)]
        deadly = those.submit(_calling("deadly", "die", {"code": 7}, attempts=3))
        assert _exit_code(daemon) == 7
        gate.touch()
        for _ in range(2):
            assert _exit_code(those.start("up")) == 7
        daemon = those.start("up")
        eventually(lambda: those.are_ended([deadly, *held]), those.describe)
        shown = _shown(those, deadly)
        assert those.end(daemon, signal.SIGTERM) == 0
        assert "attempts exhausted: all 3 were used" in shown
        assert "the process died while this step ran isolated" in shown
        events = those.rows(
            "SELECT attempt, data FROM events WHERE type = 'step.lost' AND task_id = :id"
            " ORDER BY id",
            id=deadly,
        )
        assert [attempt for attempt, _ in events] == [1, 2, 3]
        assert ["ran isolated" in data for _, data in events] == [False, True, True]
        blamed = "SELECT 1 FROM events WHERE data LIKE '%isolated%' AND task_id <> :id"
        assert those.rows(blamed, id=deadly) == []
        assert those.rows("SELECT DISTINCT status FROM steps WHERE name = 'held'") == [
            ("succeeded",)
        ]
        assert dict(those.world.counts()) == {f"/{task_id}/held": 1 for task_id in held}
        assert those.violations() == []


def _exit_code(process: ForkedProcess) -> int:
    return process.wait(120)


def _shown(those: Agents, task_id: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "agent.cli", "show", task_id],
        cwd=those.directory,
        env=those._environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return " ".join(done.stdout.split())
