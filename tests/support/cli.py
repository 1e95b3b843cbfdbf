"""Commands as real processes, in a directory of their own."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.support import fork_server
from tests.support.fork_server import ForkedProcess

ROOT = Path(__file__).parent.parent.parent
PATIENCE_SECONDS = 60.0
"""For what surely happens, on a machine that is slow and busy."""

PROGRAM = [sys.executable, "-m", "agent.cli"]

Process = subprocess.Popen[str] | ForkedProcess


COMMANDS = [
    "init",
    "up",
    "status",
    "reload",
    "stop",
    "mcp",
    "config",
    "completion",
    "help",
    "worker",
    "job",
    "run",
    "validate",
    "schema",
    "examples",
    "workflows",
    "tasks",
    "show",
    "watch",
    "logs",
    "events",
    "pause",
    "resume",
    "cancel",
    "retry",
    "fork",
    "resolve",
    "signal",
    "schedules",
    "watchers",
    "triggers",
    "queue",
    "memory",
    "approvals",
    "approve",
    "deny",
    "answer",
    "defer",
    "chat",
    "conversations",
    "pair",
    "pairings",
    "budget",
    "artifact",
    "doctor",
    "secrets",
    "db",
    "token",
    "version",
]


@dataclass(frozen=True)
class Result:
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one document on standard output."""
        return json.loads(self.out)


class Cli:
    """Runs commands in one directory.

    They are forked from a process that has the program loaded. Where the start of the interpreter
    matters (another version of the code, a limit), name a `program`.
    """

    def __init__(self, directory: Path, **environment: str) -> None:
        self.directory = directory
        self.program: list[str] | None = None
        inherited = {
            key: value for key, value in os.environ.items() if not key.startswith("AGENT_")
        }
        own = {
            "PYTHONPATH": str(ROOT),
            "NO_COLOR": "1",
            "XDG_CACHE_HOME": str(directory.parent / f"{directory.name}-cache"),
        }
        self.environment = inherited | own | environment

    def __call__(self, *arguments: str, code: int = 0, given: str | None = None) -> Result:
        """Run a command, and check its exit code and that no traceback shows."""
        result = self.run_any(*arguments, given=given)
        assert result.code == code, result
        return result

    def run_any(self, *arguments: str, given: str | None = None) -> Result:
        """Run a command that may end with any code; no traceback may show."""
        run = self._fork if self.program is None else self._spawn
        result = run(arguments, given or "")
        assert "Traceback" not in result.err + result.out, result
        return result

    def _fork(self, arguments: tuple[str, ...], given: str) -> Result:
        with TemporaryDirectory(prefix="agent-cli-") as name:
            stdin, stdout, stderr = (Path(name) / stream for stream in ("in", "out", "err"))
            stdin.write_text(given, encoding="utf-8")
            process = fork_server.shared().start(
                list(arguments),
                self.directory,
                self.environment,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
            )
            try:
                code = process.wait(PATIENCE_SECONDS * 2)
            finally:
                process.kill()
            return Result(code, stdout.read_text("utf-8"), stderr.read_text("utf-8"))

    def _spawn(self, arguments: tuple[str, ...], given: str) -> Result:
        done = subprocess.run(
            [*(self.program or PROGRAM), *arguments],
            check=False,
            cwd=self.directory,
            env=self.environment,
            input=given,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS * 2,
        )
        return Result(done.returncode, done.stdout, done.stderr)

    def write(self, name: str, text: str) -> Path:
        """Write a file into the directory."""
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    @contextmanager
    def daemon(self, *arguments: str) -> Iterator[Process]:
        """Run `agent up` for as long as the block lasts, once it says that it is ready."""
        if not any(name.startswith("AGENT_") for name in self.environment):
            # Where nothing was set up, `agent up` refuses.
            (self.directory / "config.toml").touch()
        start = self._fork_daemon if self.program is None else self._spawn_daemon
        with start(["up", *arguments], self.directory / "daemon.log") as process:
            try:
                self.wait_for(lambda: self._is_ready(process))
                yield process
            finally:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(PATIENCE_SECONDS)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()

    @contextmanager
    def _fork_daemon(self, arguments: list[str], log: Path) -> Iterator[ForkedProcess]:
        with TemporaryDirectory(prefix="agent-cli-") as name:
            stdout = Path(name) / "out"
            os.mkfifo(stdout)
            log.write_text("")
            process = fork_server.shared().start(
                arguments, self.directory, self.environment, stdout=stdout, stderr=log
            )
            with stdout.open(encoding="utf-8") as process.stdout:
                yield process

    @contextmanager
    def _spawn_daemon(self, arguments: list[str], log: Path) -> "Iterator[subprocess.Popen[str]]":
        with (
            log.open("w", encoding="utf-8") as stderr,
            subprocess.Popen(
                [*(self.program or PROGRAM), *arguments],
                cwd=self.directory,
                env=self.environment,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            ) as process,
        ):
            yield process

    def _is_ready(self, process: Process) -> bool:
        assert process.poll() is None, (self.directory / "daemon.log").read_text()
        assert process.stdout is not None
        return "agent" in process.stdout.readline()

    def wait_for(self, condition: Callable[[], Any]) -> Any:
        """Return the condition's first true value; fail when it does not come."""
        give_up = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < give_up:
            if value := condition():
                return value
            time.sleep(0.05)
        raise AssertionError("what should have happened did not")

    def task(self, task_id: str) -> Any:
        """Return a task's document."""
        return self("show", task_id, "--json").json


def api_address(process: Process) -> str:
    """Read a daemon's output until it prints the API's address."""
    assert process.stdout is not None
    for line in process.stdout:
        match = re.search(r"http://127\.0\.0\.1:\d+", line)
        if match:
            return match[0]
    raise AssertionError("the daemon did not say where its API is")


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    """Return the command line in an empty directory."""
    return Cli(tmp_path)
