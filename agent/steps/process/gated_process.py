"""A command behind a gate: its process exists, and can be recorded, before the command runs.

The child is a small shell that reads one line before it becomes the command. If this process dies
before it writes the line, the pipe closes, the read fails, and the command never begins.
"""

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final

from agent.core.files import file_descriptors
from agent.core.thread_bridge import UnboundedThreads
from agent.steps.process import processes
from agent.steps.types.call_types import Process
from agent.steps.types.errors import DefiniteFailure, OutOfDescriptorsError

# The gate is the command's own standard input: the shell reads it byte by byte, so that what
# follows the line is left for the command.
_GATE: Final = 'IFS= read -r gate && [ "$gate" = go ] || exit 125; unset gate; exec "$@"'
_POLL_SECONDS: Final = 0.02


class GatedProcess:
    """One process group, from the gate to its end."""

    def __init__(
        self,
        child: subprocess.Popen[bytes],
        process: Process,
        gate: int,
        outputs: list[int],
        threads: UnboundedThreads,
    ) -> None:
        self._child = child
        self._gate: int | None = gate
        self._outputs = outputs
        self._transports: list[asyncio.ReadTransport] = []
        # asyncio's own `wait` also waits for the pipes, which children may hold open.
        self._exit = threads.start(child.wait)
        self.process = process

    async def readers(self) -> tuple[asyncio.StreamReader, asyncio.StreamReader]:
        """Return its standard output and its standard error."""
        loop = asyncio.get_running_loop()
        streams = []
        while self._outputs:
            stream = asyncio.StreamReader()
            pipe = os.fdopen(self._outputs.pop(0), "rb", buffering=0)
            transport, _ = await loop.connect_read_pipe(_protocol_for(stream), pipe)
            self._transports.append(transport)
            streams.append(stream)
        return streams[0], streams[1]

    async def open_gate(self, stdin: str) -> None:
        """Let the command begin, and write its input."""
        assert self._gate is not None
        gate, self._gate = self._gate, None
        transport, _ = await asyncio.get_running_loop().connect_write_pipe(
            asyncio.BaseProtocol, os.fdopen(gate, "wb", buffering=0)
        )
        transport.write(b"go\n" + stdin.encode("utf-8"))
        # This closes the pipe once all is written, or when the command has ended.
        transport.close()

    async def wait(self) -> int:
        """Return the exit code of the command itself, negative if a signal ended it."""
        exit_code: int = await asyncio.shield(self._exit)
        return exit_code

    async def end(self, grace_seconds: float) -> None:
        """End the whole group: SIGTERM first, SIGKILL after the grace time."""
        group = self.process.id
        if self._gate is not None:
            # Nothing but the gate has run, so it needs no time to clean up.
            grace_seconds = 0.0
        if await asyncio.to_thread(processes.group_runs, group):
            processes.signal_group(group, signal.SIGTERM)
            loop = asyncio.get_running_loop()
            deadline = loop.time() + grace_seconds
            # The system reports no end of a group: it has to be polled.
            while loop.time() < deadline and await asyncio.to_thread(  # noqa: ASYNC110
                processes.group_runs, group
            ):
                await asyncio.sleep(_POLL_SECONDS)
            processes.signal_group(group, signal.SIGKILL)
        await self.wait()
        self._close()

    def kill(self) -> None:
        """Kill the whole group at once."""
        processes.signal_group(self.process.id, signal.SIGKILL)
        self._close()

    def _close(self) -> None:
        if self._gate is not None:
            os.close(self._gate)
            self._gate = None
        while self._outputs:
            os.close(self._outputs.pop())
        while self._transports:
            self._transports.pop().close()


def spawn(
    argv: list[str], env: dict[str, str], cwd: str | None, threads: UnboundedThreads
) -> GatedProcess:
    """Start a command behind its gate."""
    if cwd is not None and not Path(cwd).is_dir():
        raise _refused(f"cwd: there is no directory {cwd!r}")
    (stdin, gate), (stdout, out), (stderr, err) = _pipes(3)
    theirs, ours = [stdin, out, err], [gate, stdout, stderr]
    try:
        child = subprocess.Popen(
            ["/bin/sh", "-c", _GATE, "sh", *argv],
            stdin=stdin,
            stdout=out,
            stderr=err,
            env=env,
            cwd=cwd,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        for pipe in ours:
            os.close(pipe)
        if file_descriptors.is_exhaustion(error):
            raise OutOfDescriptorsError("a command") from None
        raise _refused(f"the command cannot be started: {error}") from None
    finally:
        for pipe in theirs:
            os.close(pipe)
    file_descriptors.restore_limit(child.pid)
    # It waits at the gate, or at worst to be reaped: its id cannot be reused until then.
    started = processes.start_time(child.pid) or ""
    if not started and not file_descriptors.are_available():
        # Its start time could not be read.
        _discard(child, ours)
        raise OutOfDescriptorsError("a command")
    try:
        return GatedProcess(child, Process(child.pid, started), gate, [stdout, stderr], threads)
    except RuntimeError:
        # No thread can be started to wait for it.
        _discard(child, ours)
        raise


def _discard(child: subprocess.Popen[bytes], pipes: list[int]) -> None:
    """End a child that has not passed its gate; nothing of the command has run."""
    for pipe in pipes:
        os.close(pipe)
    child.kill()
    child.wait()


def _pipes(count: int) -> list[tuple[int, int]]:
    pipes: list[tuple[int, int]] = []
    try:
        pipes.extend(os.pipe() for _ in range(count))
    except OSError as error:
        for end in (end for pipe in pipes for end in pipe):
            os.close(end)
        if file_descriptors.is_exhaustion(error):
            raise OutOfDescriptorsError("a command") from None
        raise
    return pipes


def _protocol_for(stream: asyncio.StreamReader) -> Callable[[], asyncio.StreamReaderProtocol]:
    return lambda: asyncio.StreamReaderProtocol(stream)


def _refused(message: str) -> DefiniteFailure:
    return DefiniteFailure(message, code="cannot_start", kind="input", may_retry=False)
