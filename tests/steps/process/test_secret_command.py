"""Commands that print secrets: real ones, bounded in time and output, with nothing left behind."""

import os
import sys
import time
from pathlib import Path

import pytest

from agent.core.redaction import everywhere
from agent.steps.attempt.secret_sources import SecretReadError
from agent.steps.process import processes, secret_command
from agent.steps.process.secret_command import SecretCommands


def command(*argv: str, seconds: float = 30.0, inherit: tuple[str, ...] = ()) -> SecretCommands:
    """Return the commands of a configuration with one, called `it`."""
    return SecretCommands({"it": list(argv)}, seconds, inherit)


def python(code: str, **given: float) -> SecretCommands:
    """Return a command that runs Python code."""
    return command(sys.executable, "-c", code, **given)  # type: ignore[arg-type]


def test_the_secret_is_what_the_command_prints() -> None:
    """Without the line break at its end; other lines and spaces belong to it."""
    assert command("printf", " a b\nc\n\r\n").read("it") == " a b\nc"


def test_no_shell_reads_the_words(tmp_path: Path) -> None:
    """A word is one argument, whatever characters it has."""
    assert command("printf", "%s", f"$(touch {tmp_path}/x); `id`").read("it").startswith("$(touch")
    assert not (tmp_path / "x").exists()


def test_the_environment_is_that_of_other_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent's own secrets stay with it; the configuration may name more variables."""
    monkeypatch.setenv("OWN_TOKEN", "hunter2")
    monkeypatch.setenv("VAULT_ADDR", "http://vault")
    seen = command("env", inherit=("VAULT_ADDR",)).read("it").splitlines()
    assert "VAULT_ADDR=http://vault" in seen
    assert not any(line.startswith("OWN_TOKEN") for line in seen)


@pytest.mark.parametrize(
    ("argv", "problem"),
    [
        (["sh", "-c", "echo no such item >&2; exit 3"], "sh ended with exit code 3: no such item"),
        (["sh", "-c", "kill -9 $$"], "sh ended with signal 9"),
        (["true"], "true printed nothing"),
        (["printf", "\\377"], "not UTF-8"),
        (["no-such-program-here"], "no program 'no-such-program-here' on the PATH"),
        (["/no/such/program"], "/no/such/program cannot be started"),
        (["sh", "-c", "head -c 70000 /dev/zero; sleep 60"], "printed more than 65536 bytes"),
    ],
)
def test_what_goes_wrong_names_the_command(argv: list[str], problem: str) -> None:
    """With its name in the configuration, its program and what it wrote about it."""
    started = time.monotonic()
    with pytest.raises(SecretReadError, match=r"^exec:it: ") as caught:
        command(*argv).read("it")
    assert problem in str(caught.value)
    assert time.monotonic() - started < 25


def test_an_error_shows_no_secret() -> None:
    """What a command writes about its failure is redacted as everything else."""
    everywhere.hide("hunter2-value", "env:OTHER")
    with pytest.raises(SecretReadError, match=r"bad token \[redacted\]"):
        command("sh", "-c", "echo bad token hunter2-value >&2; exit 1").read("it")


def test_only_configured_names() -> None:
    """The message says which there are."""
    with pytest.raises(
        SecretReadError, match=r"exec:other: .* add other to \[secrets.exec\]; there are it"
    ):
        command("true").read("other")


def test_a_command_that_hangs_is_ended_with_its_children(tmp_path: Path) -> None:
    """By its timeout; a prompt that is never answered leaves no process behind."""
    child = tmp_path / "child"
    script = f"sleep 60 & echo $! > {child}; echo hunter2; wait"
    with pytest.raises(SecretReadError, match=r"sh did not end within 0\.5 s") as caught:
        command("sh", "-c", script, seconds=0.5).read("it")
    assert "hunter2" not in str(caught.value)
    assert _ends(int(child.read_text()))


def test_a_child_that_holds_the_output_open_is_ended(tmp_path: Path) -> None:
    """A command that has ended is not waited for by its children's lives."""
    child = tmp_path / "child"
    script = f"sleep 60 & echo $! > {child}; echo hunter2"
    assert command("sh", "-c", script).read("it") == "hunter2"
    assert _ends(int(child.read_text()))


def test_the_next_agent_finds_what_a_killed_one_left() -> None:
    """The mark names the process that started it."""
    seen = command("env").read("it")
    assert f"{processes.WATCHER}={os.getpid()} " in seen


def test_commands_end_with_the_process(tmp_path: Path) -> None:
    """Whatever they wait for when it exits."""
    code = f"""
import threading
from agent.steps.process.secret_command import SecretCommands
command = SecretCommands({{"it": ["sh", "-c", "echo $$ > {tmp_path}/pid; exec sleep 60"]}}, 60.0)
threading.Thread(target=command.read, args=("it",), daemon=True).start()
import pathlib, time
while not (pathlib.Path("{tmp_path}/pid").exists() and pathlib.Path("{tmp_path}/pid").read_text()):
    time.sleep(0.01)
"""
    assert os.spawnl(os.P_WAIT, sys.executable, sys.executable, "-c", code) == 0
    assert _ends(int((tmp_path / "pid").read_text()))
    secret_command.end_commands()


def _ends(process_id: int) -> bool:
    """Whether a process ends soon."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if processes.start_time(process_id) is None:
            return True
        time.sleep(0.01)
    return False
