"""Commands on a task: what they change, what they refuse, and what they print."""

import pytest

from tests.support.cli import Cli

CHAIN = """\
name: chain
inputs:
  word: {type: string, default: one}
steps:
  first:
    shell: {argv: [echo, "{{ inputs.word }}"], effect: none}
  second:
    depends_on: [first]
    wait: {signal: go}
  third:
    depends_on: [second]
    shell: {argv: [sh, -c, "exit 3"], effect: none}
    retry: {max_attempts: 1}
"""


@pytest.fixture
def task(cli: Cli) -> str:
    """Return a task that no process runs yet."""
    cli.write("chain.yaml", CHAIN)
    result = cli("run", "chain.yaml", "--detach", "--json")
    assert result.json["status"] == "running"
    return str(result.json["id"])


def test_ids_by_their_end_or_their_start(cli: Cli, task: str) -> None:
    """A task is found by its id, its unique start or end; an ambiguous or unknown one is refused."""
    assert cli("show", task[-8:], "--json").json["id"] == task
    assert cli("show", task[:12], "--json").json["id"] == task
    assert cli("show", task, "--json").json["id"] == task
    assert "ffffffff" in cli("show", "ffffffff", code=3).err
    cli("run", "chain.yaml", "--detach")
    assert "could be any of" in cli("show", task[:4], code=3).err
    assert "at least three characters" in cli("show", task[:2], code=3).err


@pytest.mark.parametrize("command", ["tasks", "show"])
def test_without_an_agent_commands_warn(cli: Cli, task: str, command: str) -> None:
    """Its status says what is on record; that nothing will come of it by itself stands beside."""
    asked = [command] if command == "tasks" else [command, task]
    assert "no agent is running: `agent up` resumes" in cli(*asked).err
    assert cli(*asked, "--json").err == ""
    cli("cancel", task)
    assert cli(*asked).err == ""


def test_pause_resume_cancel_and_their_repetition(cli: Cli, task: str) -> None:
    """Each command says whether it changed something; repeating it is harmless and says so."""
    assert cli("pause", task, "--reason", "lunch", "--json").json["changed"] is True
    assert cli.task(task)["status"] == "paused"
    assert "lunch" in cli("tasks").out, "the list says why"
    assert cli("pause", task, "--json").json["changed"] is False
    assert cli("resume", task, "--json").json["changed"] is True
    assert cli("resume", task, "--json").json["changed"] is False
    assert "agent up" in cli("resume", task).err
    assert cli("cancel", task, "--json").json["changed"] is True
    assert cli.task(task)["status"] == "canceled"
    assert cli("cancel", task, "--json").json["changed"] is False
    assert cli("resume", task, code=3).err.startswith("agent: ")


def test_without_an_agent_a_retry_notices_a_changed_file(cli: Cli) -> None:
    """It says that there is a newer version; a broken file stops only who chooses it."""
    failing = CHAIN.replace("wait: {signal: go}", "wait: 1ms")
    file = cli.write("chain.yaml", failing)
    task = cli("run", "chain.yaml", "--json", code=1).json["id"]
    file.write_text("name: chain\nsteps: {}\n", encoding="utf-8")
    assert "steps" in cli("retry", task, "--latest", code=2).err
    assert "is newer" not in cli("fork", task, "--from", "third").out
    file.write_text(failing.replace("exit 3", "exit 0"), encoding="utf-8")
    assert "version 2 of chain is newer" in cli("fork", task, "--from", "third").out
    assert "version 2 of chain is newer" in cli("retry", task).out


def test_commands_that_the_state_does_not_allow_are_refused(cli: Cli, task: str) -> None:
    """A running task cannot be retried, and only a step with an unknown call can be resolved."""
    cli("retry", task, code=3)
    cli("resolve", task, "first", "--done", code=3)
    cli("resolve", task, "nowhere", "--done", code=3)
    cli("fork", task, "--from", "nowhere", code=3)
    assert cli.task(task)["status"] == "running"
