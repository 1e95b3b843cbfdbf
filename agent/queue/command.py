"""A handler that runs a command: the step as JSON on its standard input, its output on standard output.

The command leads a process group of its own. When the step is cancelled, the group gets SIGTERM, and
SIGKILL after a grace time. A guard, a shell that waits at a pipe, does the same if this process dies:
the lease is then over, and the command must not go on beside the next attempt.
"""

import contextlib
import json
import os
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Collection, Sequence
from typing import IO, Any, Final

from agent.core.clock import Clock
from agent.queue.errors import Final as FinalFailure
from agent.queue.errors import HandlerEnd, Retry
from agent.queue.work import Work

_POLL_SECONDS: Final = 0.05
_MAX_OUTPUT_BYTES: Final = 64 * 1024 * 1024
_PIECE_BYTES: Final = 65_536
_READ_SECONDS: Final = 5.0
"""For output left in the pipes; a process that the command started may hold them open."""
_MAX_LINE_CHARS: Final = 500
_LAST_LINES: Final = 5
# The read ends when this process closes the pipe, or dies.
_GUARD: Final = 'read -r _; kill -TERM "-$1"; sleep "$2"; kill -KILL "-$1"'
_PRIVATE: Final = ("AGENT_TOKEN", "AGENT_TOKEN_FILE")
"""Not for the command: it works on one step, and may claim no others."""


class CommandHandler:
    """Runs one command for each claimed step."""

    def __init__(
        self, argv: Sequence[str], *, grace_seconds: float, final_codes: Collection[int] = ()
    ) -> None:
        self._argv = list(argv)
        self._grace_seconds = grace_seconds
        self._final_codes = frozenset(final_codes)
        self._clock = Clock()

    def __call__(self, work: Work) -> Any:
        """Run the command on a step; return its output, or raise the error of its exit code."""
        try:
            process = subprocess.Popen(
                self._argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=_environment(work),
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise Retry(f"the command cannot be started: {error}", code="cannot_start") from None
        with self._guarded(process):
            streams = _Streams(process, work)
            while process.poll() is None and not streams.is_too_large:
                if work.wait(_POLL_SECONDS):
                    break
            is_ended_by_us = process.poll() is None
            self._end(process)
            streams.join()
        if is_ended_by_us and not streams.is_too_large:
            raise HandlerEnd
        return self._result(process.returncode, streams)

    def _result(self, code: int, streams: "_Streams") -> Any:
        if streams.is_too_large:
            raise FinalFailure(
                f"the command wrote more than {_MAX_OUTPUT_BYTES // 2**20} MB", code="bad_output"
            )
        if code == 0:
            return streams.output()
        how = f"exit code {code}" if code > 0 else f"ended by {_signal_name(-code)}"
        between = ":\n" if len(streams.last_lines) > 1 else ": "
        message = between.join(filter(None, [how, "\n".join(streams.last_lines)]))
        if code in self._final_codes:
            raise FinalFailure(message, code="exit_code")
        raise Retry(message, code="exit_code" if code > 0 else "signal")

    def _end(self, process: "subprocess.Popen[bytes]") -> None:
        """End the remaining processes of the command's group."""
        _signal_group(process.pid, signal.SIGTERM)
        deadline = self._clock.monotonic() + self._grace_seconds
        while process.poll() is None and self._clock.monotonic() < deadline:
            self._clock.sleep(_POLL_SECONDS)
        _signal_group(process.pid, signal.SIGKILL)
        process.wait()

    @contextlib.contextmanager
    def _guarded(self, process: "subprocess.Popen[bytes]") -> Any:
        """Let a guard end the command's group if this process dies."""
        guard = subprocess.Popen(
            ["/bin/sh", "-c", _GUARD, "guard", str(process.pid), f"{self._grace_seconds:g}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            yield
        finally:
            guard.kill()
            guard.communicate()


class _Streams:
    """The pipes of a command, each in a thread: neither side may wait for the other."""

    def __init__(self, process: "subprocess.Popen[bytes]", work: Work) -> None:
        self._work = work
        self._output = bytearray()
        self.is_too_large = False
        self.last_lines = deque[str](maxlen=_LAST_LINES)
        """The last lines of its standard error that are not empty."""
        stdin, stdout, stderr = process.stdin, process.stdout, process.stderr
        assert stdin is not None
        assert stdout is not None
        assert stderr is not None
        text = json.dumps(work.document, ensure_ascii=False)
        self._threads = [
            threading.Thread(target=_write, args=[stdin, text.encode()], daemon=True),
            threading.Thread(target=self._read_output, args=[stdout], daemon=True),
            threading.Thread(target=self._read_errors, args=[stderr], daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        """Wait for the output still in the pipes."""
        for thread in self._threads:
            thread.join(_READ_SECONDS)

    def output(self) -> Any:
        """Return standard output: a JSON value if it is one, else its text."""
        text = bytes(self._output).decode("utf-8", "replace")
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return text.removesuffix("\n")

    def _read_output(self, stream: IO[bytes]) -> None:
        with stream:
            while piece := os.read(stream.fileno(), _PIECE_BYTES):
                if len(self._output) + len(piece) > _MAX_OUTPUT_BYTES:
                    self.is_too_large = True
                    return
                self._output += piece

    def _read_errors(self, stream: IO[bytes]) -> None:
        with stream:
            for line in stream:
                text = line.decode("utf-8", "replace")
                self._work.log(text, "stderr")
                if text.strip():
                    self.last_lines.append(text.rstrip()[:_MAX_LINE_CHARS])


def _write(stream: IO[bytes], content: bytes) -> None:
    # A command need not read its input.
    with contextlib.suppress(BrokenPipeError), stream:
        stream.write(content)


def _environment(work: Work) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if name not in _PRIVATE}
    return inherited | {
        "AGENT_WORK_QUEUE": work.queue,
        "AGENT_WORK_TASK": work.task_id,
        "AGENT_WORK_STEP": work.step,
        "AGENT_WORK_ATTEMPT": str(work.attempt),
        "AGENT_WORK_KEY": work.key or "",
    }


def _signal_group(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
