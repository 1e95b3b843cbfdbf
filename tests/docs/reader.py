"""A reader who does what a page says: writes its files and types its commands, in an empty directory."""

import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.docs.blocks import ROOT, Block
from tests.docs.matching import match_output, with_known_ids
from tests.support.cli import PATIENCE_SECONDS, Cli
from tests.support.free_port import free_port

_PORTS = ("8420", "8431")
"""Ports that pages name: the agent's own, and a web server's that a page starts. Each run uses others."""

_STARTS = ("agent up", "make run")
_READS = frozenset(
    {"tasks", "show", "approvals", "schedules", "watchers", "triggers", "events", "logs", "status"}
)
"""Commands that change nothing: they are repeated until they print what the page shows."""

_FINE = (0, 4)
"""Exit codes of a command that did its work; 4 means that a task waits for a person."""

_NEEDS_SHELL = re.compile(r"[|&;<>$`*~]|^cd |^export ")


class Reader:
    """Follows one page. Its home directory is its own; the agent it starts listens on a free port."""

    def __init__(self, directory: Path, *, has_examples: bool) -> None:
        self._ids: dict[str, str] = {}
        self._daemon = contextlib.ExitStack()
        self._ports = {port: str(free_port()) for port in _PORTS}
        self._groups: list[int] = []
        self._home = directory
        self._here = directory / "page"
        self._here.mkdir()
        if has_examples:
            _copy_examples(self._here)
        self._environment = {
            "HOME": str(directory),
            "XDG_CONFIG_HOME": str(directory / ".config"),
            "AGENT_SERVER__PORT": self._ports[_PORTS[0]],
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "COLUMNS": "140",
        }
        if has_examples:
            self._environment["AGENT_WORKFLOWS__DIRECTORY"] = "examples"

    def close(self) -> None:
        """Stop the agent that the page started, and what its commands left in the background."""
        self._daemon.close()
        for group in self._groups:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)

    def write(self, block: Block) -> None:
        """Write a block with a title to the file that the title names."""
        assert block.title is not None
        path = self._here / block.title
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self._with_free_ports(block.text), encoding="utf-8")

    def follow(self, block: Block) -> None:
        """Type each command of a block, and compare what it prints."""
        for command, expected in _commands(block):
            self._type(command, expected, block)

    def _type(self, command: str, expected: str, block: Block) -> None:
        command = self._with_free_ports(with_known_ids(command, self._ids))
        if command.startswith(_STARTS):
            self._start()
            return
        give_up = time.monotonic() + PATIENCE_SECONDS
        while True:
            code, printed = self._run(command)
            allowed = _FINE if block.exit_code is None else (block.exit_code,)
            is_right = code in allowed and (
                not expected or match_output(expected, self._as_documented(printed), self._ids)
            )
            if is_right:
                return
            if not _is_read(command) or time.monotonic() > give_up:
                raise AssertionError(
                    f"{block.place}: `{command}` ended with {code} and printed\n{printed}\n"
                    f"The page shows\n{expected}"
                )
            time.sleep(0.2)

    def _with_free_ports(self, text: str) -> str:
        for documented, free in self._ports.items():
            text = text.replace(documented, free)
        return text

    def _as_documented(self, printed: str) -> str:
        for documented, free in self._ports.items():
            printed = printed.replace(free, documented)
        return printed.replace(str(self._home), "~")

    def _run(self, command: str) -> tuple[int, str]:
        if command.startswith("agent ") and not _NEEDS_SHELL.search(command):
            result = Cli(self._here, **self._environment)
            done = result.run_any(*shlex.split(command)[1:])
            return done.code, done.out + done.err
        return self._run_in_shell(command)

    def _run_in_shell(self, command: str) -> tuple[int, str]:
        where = self._home / ".where"
        # A file, not a pipe: a server that the command leaves in the background would hold a pipe open.
        with tempfile.TemporaryFile("w+", encoding="utf-8") as output:
            process = subprocess.Popen(
                ["bash", "-c", f'{command}\ncode=$?; {{ pwd; export -p; }} > "$WHERE"; exit $code'],
                cwd=self._here,
                env=self._shell_environment() | {"WHERE": str(where)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            self._groups.append(process.pid)
            code = process.wait(PATIENCE_SECONDS * 2)
            output.seek(0)
            printed = output.read()
        if where.exists():
            here, *exported = where.read_text(encoding="utf-8").splitlines()
            self._here = Path(here)
            self._environment |= dict(
                shlex.split(line.removeprefix("declare -x "))[0].split("=", 1)
                for line in exported
                if re.match(r"declare -x (?!WHERE|PWD|OLDPWD|SHLVL|_=)\w+=\".*\"$", line)
            )
        return code, printed

    def _shell_environment(self) -> dict[str, str]:
        return Cli(self._here, **self._environment).environment

    def _start(self) -> None:
        self._daemon.close()
        cli = Cli(self._here, **self._environment)
        has_hello = (self._here / "examples" / "hello.yaml").exists()
        arguments = ["--run", "examples/hello.yaml"] if has_hello else []
        self._daemon.enter_context(cli.daemon(*arguments))


def _commands(block: Block) -> list[tuple[str, str]]:
    """Split a console block into its commands and what the page shows for each."""
    found: list[tuple[str, str]] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            found.append((re.sub(r"\s{2,}#.*$", "", line[2:]), ""))
        elif found:
            command, expected = found[-1]
            if command.endswith("\\"):
                found[-1] = (f"{command[:-1]}{line.strip()}", expected)
            else:
                found[-1] = (command, f"{expected}{line}\n")
        else:
            raise AssertionError(f"{block.place}: output without a command: {line!r}")
    return found


def _is_read(command: str) -> bool:
    words = command.split()
    return words[0] in {"cat", "ls"} or (words[0] == "agent" and words[1] in _READS)


def _copy_examples(directory: Path) -> None:
    """Give the page what a clone has: the examples (a copy, since tasks write beside them)."""
    shutil.copytree(ROOT / "examples", directory / "examples")
