"""`agent queue work`: one command for each claimed step."""

import signal
from pathlib import Path
from typing import Any

import pytest

from agent.steps.process import processes
from tests.support import fork_server
from tests.support.cli import Cli, Result
from tests.support.queue_bench import QueueBench
from tests.support.server import wait_for

pytestmark = pytest.mark.process


@pytest.fixture
def cli(bench: QueueBench, tmp_path: Path) -> Cli:
    """Return the command line of another machine: it knows the agent's address and a token, no more."""
    return Cli(tmp_path, AGENT_SERVER=bench.running.server.url, AGENT_TOKEN=bench.running.token)


def work(cli: Cli, queue: str, script: str, *options: str) -> Result:
    """Run a script for the next step of a queue."""
    return cli("queue", "work", queue, "--once", *options, "--", "sh", "-c", script)


@pytest.mark.parametrize(
    ("script", "output"),
    [
        ("""printf '{"sum": 3}'""", {"sum": 3}),
        ("echo plain text", "plain text"),
        ("cat >/dev/null", ""),
    ],
    ids=["json", "text", "nothing"],
)
def test_standard_output_is_the_output(
    bench: QueueBench, cli: Cli, script: str, output: Any
) -> None:
    """JSON is taken as it is; anything else is a text."""
    task_id = bench.start("printing")
    work(cli, "printing", script)
    assert bench.ended(task_id)["output"] == output


def test_the_command_gets_the_claim_and_no_token(bench: QueueBench, cli: Cli) -> None:
    """The claim is on standard input, what identifies it in the environment; the token is not."""
    task_id = bench.start("telling", {"a": 1})
    script = (
        'read -r claim; echo "$claim" | grep -q \'"value": {"a": 1}\' || exit 9;'
        ' echo "$AGENT_WORK_QUEUE $AGENT_WORK_STEP $AGENT_WORK_ATTEMPT ${AGENT_TOKEN-none}"'
    )
    work(cli, "telling", script)
    assert bench.ended(task_id)["output"] == "telling job 1 none"


def test_a_bad_exit_code_is_a_failure_with_the_last_lines_of_standard_error(
    bench: QueueBench, cli: Cli
) -> None:
    """It is retried; what the command complained about is in the error and in the log."""
    task_id = bench.start("failing", retry={"max_attempts": 2, "delay": "10ms"})
    for _ in range(2):
        work(cli, "failing", "echo first >&2; echo 'no such file' >&2; exit 3")
    error = bench.ended(task_id, "failed")["error"]
    assert "exit code 3:\nfirst\nno such file" in error["message"]
    assert bench.log(task_id) == "first\nno such file\n" * 2


def test_a_final_code_is_not_retried(bench: QueueBench, cli: Cli) -> None:
    """`--final-code` names exit codes that another attempt would only repeat."""
    task_id = bench.start("final")
    work(cli, "final", "exit 7", "--final-code", "7")
    bench.ended(task_id, "failed")
    assert bench.step(task_id)["attempt"] == 1


def test_a_command_that_does_not_exist_fails_the_step(bench: QueueBench, cli: Cli) -> None:
    """The step fails with the reason; the worker does not."""
    task_id = bench.start("missing", retry={"max_attempts": 1})
    cli("queue", "work", "missing", "--once", "--", "no-such-program-here")
    assert "cannot be started" in bench.ended(task_id, "failed")["error"]["message"]


def test_a_cancelled_step_ends_the_whole_group(bench: QueueBench, cli: Cli, tmp_path: Path) -> None:
    """The command ignores SIGTERM and has a child: both are gone after the grace time."""
    script = "trap '' TERM; sleep 300 & echo $$ > group; wait; sleep 300"
    task_id = bench.start("stubborn", worker={"lease": "1s"})
    process = _start(
        cli, "queue", "work", "stubborn", "--once", "--grace", "300ms", "--", "sh", "-c", script
    )
    group = wait_for(lambda: _number(tmp_path / "group"))
    bench.client.post(f"/api/v1/tasks/{task_id}/cancel")
    assert process.wait(60) == 0
    assert not processes.group_runs(group)


def test_a_killed_worker_takes_its_command_along(
    bench: QueueBench, cli: Cli, tmp_path: Path
) -> None:
    """SIGKILL ends the worker; the command does not go on beside the next attempt."""
    bench.start("abandoned", worker={"lease": "1s"})
    process = _start(
        cli, "queue", "work", "abandoned", "--once", "--grace", "300ms", "--",
        "sh", "-c", "echo $$ > group; sleep 300",
    )  # fmt: skip
    group = wait_for(lambda: _number(tmp_path / "group"))
    process.send_signal(signal.SIGKILL)
    process.wait(60)
    wait_for(lambda: not processes.group_runs(group))


def test_drain_ends_with_the_queue(bench: QueueBench, cli: Cli) -> None:
    """All steps that wait are done, several at a time, and the command ends."""
    task_ids = [bench.start("draining", number) for number in range(5)]
    cli("queue", "work", "draining", "--drain", "-j", "3", "--", "echo", "1")
    assert [bench.ended(task_id)["output"] for task_id in task_ids] == [1] * 5


def test_without_an_agent_it_says_what_is_missing(tmp_path: Path) -> None:
    """No agent runs in this directory, and none is named: the message has both ways out."""
    cli = Cli(tmp_path)
    cli("init")
    refused = cli("queue", "work", "any", "--", "true", code=5)
    assert "agent up" in refused.err
    assert "--server" in refused.err
    assert "--grace" in cli("queue", "work", "any", "--grace", "soon", "--", "true", code=2).err
    assert "no queue's name" in cli("queue", "work", "Any", "--", "true", code=2).err


def test_a_token_that_may_not_work_on_the_queue_is_refused(
    bench: QueueBench, tmp_path: Path
) -> None:
    """The agent's reason is the message; the exit code says that it was refused."""
    token = bench.running.token_with("work:other")
    cli = Cli(tmp_path, AGENT_SERVER=bench.running.server.url, AGENT_TOKEN=token)
    assert "mine" in cli("queue", "work", "mine", "--once", "--", "true", code=3).err


def _start(cli: Cli, *arguments: str) -> fork_server.ForkedProcess:
    return fork_server.shared().start(
        list(arguments), cli.directory, cli.environment, stderr=cli.directory / "err"
    )


def _number(path: Path) -> int:
    try:
        return int(path.read_text())
    except (FileNotFoundError, ValueError):
        return 0
