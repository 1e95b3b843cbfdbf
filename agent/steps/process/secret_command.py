"""The source `exec:NAME`: the output of a configured command, such as `op read` or `pass show`.

The command is a list of words in `[secrets.exec]`, run without a shell. A definition can only name it.
It is bounded in time and in output, and its whole process group ends with the read, or with this
process. After a SIGKILL of the agent, the next start finds the group by the mark in its environment.
"""

import atexit
import os
import re
import shutil
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from typing import IO, Final

from agent.core.redaction import everywhere
from agent.steps.attempt.secret_sources import SecretReadError
from agent.steps.process import processes
from agent.steps.process.environment import environment_of_watcher

_MAX_OUTPUT_BYTES: Final = 65_536
_TAIL_BYTES: Final = 4096
_SHOWN_STDERR: Final = 500
_DRAIN_SECONDS: Final = 1.0
"""How long the output may stay open after the command's exit, before its children are ended."""


class SecretCommands:
    """Runs the commands of the configuration; any thread may use it."""

    def __init__(
        self,
        commands: Mapping[str, Sequence[str]],
        timeout_seconds: float,
        inherit: Sequence[str] = (),
        directory: str | None = None,
    ) -> None:
        self._commands = commands
        self._timeout_seconds = timeout_seconds
        self._inherit = inherit
        self._directory = directory

    def read(self, name: str) -> str:
        """Return the output of a command, without the line break at its end; raise `SecretReadError`."""
        argv = self._commands.get(name)
        if argv is None:
            known = ", ".join(sorted(self._commands)) or "none"
            raise SecretReadError(
                f"exec:{name}: the configuration has no such command: add {name} to [secrets.exec];"
                f" there are {known}"
            )
        env = environment_of_watcher({}, self._inherit)
        program = argv[0]
        if "/" not in program and shutil.which(program, path=env.get("PATH", os.defpath)) is None:
            raise SecretReadError(f"exec:{name}: there is no program {program!r} on the PATH")
        command = f"exec:{name}: {program}"
        exit_code, stdout, stderr = self._run(command, list(argv), env)
        if exit_code != 0:
            how = f"exit code {exit_code}" if exit_code > 0 else f"signal {-exit_code}"
            raise SecretReadError(f"{command} ended with {how}{_shown(stderr)}")
        try:
            value = stdout.decode("utf-8").rstrip("\r\n")
        except UnicodeDecodeError:
            raise SecretReadError(f"{command} printed something that is not UTF-8") from None
        if not value.strip():
            raise SecretReadError(f"{command} printed nothing{_shown(stderr)}")
        return value

    def _run(self, command: str, argv: list[str], env: dict[str, str]) -> tuple[int, bytes, bytes]:
        try:
            child = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=env,
                cwd=self._directory,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise SecretReadError(f"{command} cannot be started: {error}") from None
        _running.add(child.pid)
        try:
            return self._complete(command, child)
        finally:
            # Once it is reaped, only a group that still runs surely keeps its id.
            if child.poll() is None or processes.group_runs(child.pid):
                processes.signal_group(child.pid, signal.SIGKILL)
            child.wait()
            _running.remove(child.pid)

    def _complete(self, command: str, child: subprocess.Popen[bytes]) -> tuple[int, bytes, bytes]:
        assert child.stdout is not None and child.stderr is not None
        stdout = _Output(child.stdout, _MAX_OUTPUT_BYTES, child.pid)
        stderr = _Output(child.stderr, None, child.pid)
        try:
            exit_code = child.wait(self._timeout_seconds)
        except subprocess.TimeoutExpired:
            raise SecretReadError(
                f"{command} did not end within {self._timeout_seconds:g} s; it may wait for a person"
                " to confirm (timeout_seconds in [secrets])"
            ) from None
        if not stdout.join(_DRAIN_SECONDS) and processes.group_runs(child.pid):
            # Children that outlive the command hold its output open.
            processes.signal_group(child.pid, signal.SIGKILL)
            stdout.join(_DRAIN_SECONDS)
        stderr.join(_DRAIN_SECONDS)
        if stdout.is_too_long:
            raise SecretReadError(f"{command} printed more than {_MAX_OUTPUT_BYTES} bytes")
        return exit_code, stdout.content, stderr.content


class _Output:
    """Reads a pipe in a thread: the whole of it up to a limit, or only its end."""

    def __init__(self, pipe: IO[bytes], limit: int | None, group: int) -> None:
        self._pipe = pipe
        self._limit = limit
        self._group = group
        self._content = bytearray()
        self.is_too_long = False
        self._thread = threading.Thread(target=self._read, name="secret-output", daemon=True)
        self._thread.start()

    @property
    def content(self) -> bytes:
        """The output read so far."""
        return bytes(self._content)

    def join(self, seconds: float) -> bool:
        """Wait for the end of the pipe; return whether it was reached."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _read(self) -> None:
        with self._pipe as pipe:
            while chunk := os.read(pipe.fileno(), 65_536):
                self._content += chunk
                if self._limit is None:
                    del self._content[:-_TAIL_BYTES]
                elif len(self._content) > self._limit:
                    self.is_too_long = True
                    processes.signal_group(self._group, signal.SIGKILL)
                    return


class _Running:
    """The commands that run now: they end with this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._groups: set[int] = set()

    def add(self, group: int) -> None:
        with self._lock:
            self._groups.add(group)

    def remove(self, group: int) -> None:
        with self._lock:
            self._groups.discard(group)

    def end_all(self) -> None:
        with self._lock:
            for group in self._groups:
                processes.signal_group(group, signal.SIGKILL)


_running: Final = _Running()
atexit.register(_running.end_all)


def end_commands() -> None:
    """End the commands that run now, for a process that exits without its exit handlers."""
    _running.end_all()


def _shown(stderr: bytes) -> str:
    """Return the end of a command's error output, without secrets."""
    text = stderr.decode("utf-8", "replace")
    if len(stderr) >= _TAIL_BYTES:
        # The first line may be cut inside a secret, which redaction would not find.
        text = text.partition("\n")[2]
    shown = [line.strip() for line in everywhere.redact(text).splitlines() if line.strip()]
    message = re.sub(r"[^\x20-\x7e\xa0-\U0010ffff]", " ", " / ".join(shown))
    return f": {message[-_SHOWN_STDERR:]}" if message else ""
