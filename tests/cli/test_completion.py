"""Completion: what can follow, from the commands themselves and from the agent."""

import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
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


def test_the_value_of_an_option_may_follow_an_equals_sign(agent: Cli) -> None:
    """As one word, which zsh and fish replace as a whole; bash makes three words of it."""
    assert _words("tasks", "--status=f") == ["--status=failed"]
    assert _words("tasks", "--workflow=") == ["--workflow=hello"]
    assert _words("tasks", "--status", "=", "f") == ["failed"]
    assert "failed" in _words("tasks", "--status", "=")
    assert _words("tasks", "--status", "=", "failed", "--workflow", "=", "h") == ["hello"]


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
    assert (f"fpath+=({written.parent})" in said) == (shell == "zsh")
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


@pytest.fixture
def on_path(agent: Cli, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return an environment in which a shell finds the program `agent`, and no settings of a user."""
    programs = tmp_path_factory.mktemp("programs")
    program = programs / "agent"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m agent.cli "$@"\n')
    program.chmod(0o755)
    home = {"HOME": str(programs), "XDG_CONFIG_HOME": str(programs), "ZDOTDIR": str(programs)}
    path = f"{programs}:{agent.environment['PATH']}"
    return agent.environment | home | {"PYTHONPATH": str(ROOT), "PATH": path, "TERM": "dumb"}


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish_completes(agent: Cli, on_path: dict[str, str]) -> None:
    """The script works in a real fish: commands, tasks, steps, workflows, values and files."""
    (agent.directory / "hello.txt").write_text("")
    task = agent("run", "hello", "--json").json["id"][-8:]
    lines = {
        "agent appro": ["approvals", "approve"],
        f"agent show {task[:4]}": [task],
        f"agent show {task} ": ["greet"],
        "agent run he": ["hello", "hello.txt"],
        "agent tasks --workflow=": ["--workflow=hello"],
    }
    script = SCRIPTS["fish"] + "".join(f"complete -C '{line}'; echo end\n" for line in lines)
    done = subprocess.run(
        ["fish", "--no-config", "-c", script],
        cwd=agent.directory,
        env=on_path,
        capture_output=True,
        text=True,
        check=True,
    )
    answers = [part.splitlines() for part in done.stdout.split("end\n")[:-1]]
    assert [[line.split("\t")[0] for line in answer] for answer in answers] == list(lines.values())


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_zsh_completes(agent: Cli, on_path: dict[str, str]) -> None:
    """The script works in a real zsh at a terminal: Tab completes what is unique."""
    (agent.directory / "notes.txt").write_text("")
    task = agent("run", "hello", "--json").json["id"][-8:]
    lines = {
        "agent sho": "agent show ",
        f"agent show {task[:4]}": f"agent show {task} ",
        f"agent show {task} gr": f"agent show {task} greet ",
        "agent run hel": "agent run hello ",
        "agent run not": "agent run notes.txt ",
        "agent tasks --workflow=he": "agent tasks --workflow=hello ",
    }
    written = agent.directory / "lines"
    start = f"""
autoload -U compinit && compinit -D -u
{SCRIPTS["zsh"]}
write_line() {{ print -r -- "$BUFFER" >> {written}; BUFFER=""; }}
zle -N write_line && bindkey '^X' write_line && bindkey '^I' complete-word
: > {written}
"""
    (Path(on_path["ZDOTDIR"]) / ".zshrc").write_text(start)
    master, slave = os.openpty()
    shell = subprocess.Popen(
        ["zsh", "-i"], cwd=agent.directory, env=on_path, stdin=slave, stdout=slave, stderr=slave
    )
    os.close(slave)
    try:
        _drain_until(master, written.exists)
        for number, line in enumerate(lines, start=1):
            os.write(master, f"{line}\t\x18".encode())
            _drain_until(master, partial(_has_lines, written, number))
    finally:
        shell.kill()
        shell.wait()
        os.close(master)
    assert _lines(written) == list(lines.values())


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_zsh_describes_what_has_a_description(agent: Cli, on_path: dict[str, str]) -> None:
    """A workflow has one; a status is its own. Names come before files."""
    story = f"""
compdef() {{ : }}
{SCRIPTS["zsh"]}
_describe() {{ print -l -- $values }}
_files() {{ print -- files }}
words=(agent run "") CURRENT=3; _agent
words=(agent tasks --status s) CURRENT=4; _agent
"""
    done = subprocess.run(
        ["zsh", "-f", "-c", story],
        cwd=agent.directory,
        env=on_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == ["hello:A greeting.", "files", "succeeded"]


def _has_lines(path: Path, count: int) -> bool:
    return len(_lines(path)) >= count


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


def _drain_until(terminal: int, is_done: Callable[[], bool]) -> None:
    """Read what a terminal shows until something has happened, at most 30 seconds."""
    deadline = time.monotonic() + 30
    while not is_done():
        assert time.monotonic() < deadline
        if select.select([terminal], [], [], 0.05)[0]:
            os.read(terminal, 65_536)
