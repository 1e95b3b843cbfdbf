"""Completion: what can follow, from the commands themselves and from the agent."""

import subprocess
import sys
from pathlib import Path

import pytest

from agent.cli import completion, registry
from agent.cli.commands.completion import SCRIPTS
from agent.cli.completion import FILES, TAKES_TASK, candidates
from agent.cli.program import program
from tests.support.cli import ROOT, Cli

HELLO = """\
name: hello
description: A greeting.
steps:
  greet:
    shell: {argv: [echo, hello], effect: none}
"""


def _words(*words: str) -> list[str]:
    return [word for word, _ in candidates(list(words))]


@pytest.fixture
def agent(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Complete in this process, in the directory of an agent with one task."""
    cli.write("config.toml", "")
    (cli.directory / "workflows").mkdir()
    (cli.directory / "workflows" / "hello.yaml").write_text(HELLO)
    monkeypatch.chdir(cli.directory)
    return cli


def test_commands_and_options() -> None:
    """The first word is a command; with a dash, an option of the command before it."""
    assert _words("") == [entry.name for entry in registry.COMMANDS]
    assert _words("appro") == ["approvals", "approve"]
    assert "--config" in _words("--")
    assert {"--json", "--help"} <= set(_words("tasks", "--"))
    assert _words("schedules", "pa") == ["pause"]
    assert _words("tasks", "--status", "f") == ["failed"]
    assert _words("--config", "") == [FILES]
    assert _words("completion", "") == ["bash", "zsh", "fish"]


def test_values_come_from_the_agent(agent: Cli) -> None:
    """Tasks by their short ids, steps of the task before, workflows by their names."""
    task = agent("run", "hello", "--json").json["id"][-8:]
    assert _words("show", "") == [task]
    assert _words("show", task[:3]) == [task]
    assert _words("show", task, "") == ["greet"]
    assert _words("fork", task, "--from", "") == ["greet"]
    assert _words("run", "") == ["hello", FILES]
    assert _words("run", "x") == [FILES]
    assert dict(candidates(["run", "h"]))["hello"] == "A greeting."
    assert _words("config", "set", "engine.sl") == ["engine.slots"]
    assert "engine.slots" in _words("config", "engine.")


def test_commands_that_take_a_task() -> None:
    """The list that saves loading typer agrees with the commands."""
    taking = set()
    for name, command in program().commands.items():
        first = next((each for each in command.params if each.param_type_name == "argument"), None)
        if first is not None and first.metavar == "TASK":
            taking.add(name)
    assert taking == TAKES_TASK


def test_what_cannot_be_read_completes_to_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No message appears in the middle of a line that a person types."""
    monkeypatch.chdir(tmp_path)
    completion.main(["show", ""])
    (tmp_path / "config.toml").write_text("[engine\n")
    completion.main(["show", ""])
    completion.main(["nothing", "such", ""])
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("shell", SCRIPTS)
def test_scripts_are_printed_and_installed(
    cli: Cli, shell: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The same script, to standard output or to where the shell looks."""
    home = tmp_path_factory.mktemp("home")
    cli.environment |= {"HOME": str(home)}
    cli.environment.pop("XDG_DATA_HOME", None)
    cli.environment.pop("XDG_CONFIG_HOME", None)
    script = cli("completion", shell).out
    assert "__complete" in script
    said = cli("completion", shell, "--install").out
    (written,) = [path for path in home.rglob("*") if path.is_file()]
    assert written.read_text() == script
    assert str(written) in said
    assert "use bash, zsh or fish" in cli("completion", "tcsh", code=2).err


def test_bash_completes(agent: Cli) -> None:
    """The script works in a real shell: commands, workflows and files."""
    (agent.directory / "hello.txt").write_text("")
    story = f"""
agent() {{ "{sys.executable}" -m agent.cli "$@"; }}
{SCRIPTS["bash"]}
complete_line() {{
    COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _agent; echo "${{COMPREPLY[*]}}"
}}
complete_line agent appro
complete_line agent run he
"""
    done = subprocess.run(
        ["bash", "-c", story],
        cwd=agent.directory,
        env=agent.environment | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == ["approvals approve", "hello hello.txt"]
