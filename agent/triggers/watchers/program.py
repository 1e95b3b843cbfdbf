"""Programs that a poll runs: bounded in time and in output, with no process left behind.

A program leads a process group of its own, which is ended with the poll, however that ends. After a
SIGKILL of the agent, the next start finds the group by the mark in its environment
(`agent.tasks.rescue.orphan_processes`).
"""

import asyncio
import os
import shutil
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agent.core.redaction import everywhere
from agent.steps.process import processes
from agent.steps.process.gated_process import GatedProcess, spawn
from agent.steps.types.errors import DefiniteFailure
from agent.triggers.watchers.item_checks import for_people, storable
from agent.triggers.watchers.poll_threads import threads_of
from agent.triggers.watchers.source import PollContext, SourceError

_CHUNK_BYTES: Final = 65_536
_TAIL_BYTES: Final = 8_192
_DRAIN_SECONDS: Final = 1.0
"""How long the output may stay open after the program's exit, before its children are ended."""
_GRACE_SECONDS: Final = 1.0
"""Between SIGTERM and SIGKILL; a poll changes nothing, so there is little to clean up."""
_TAIL_LINES: Final = 5


@dataclass(frozen=True, slots=True)
class Program:
    """One program, as a poll runs it."""

    name: str
    """What messages call it."""
    argv: list[str]
    env: dict[str, str]
    cwd: str | None
    most_bytes: int
    """The largest output that is read; a larger one is an error."""


@dataclass(frozen=True, slots=True)
class Completed:
    """What a program printed before it ended with exit code 0."""

    stdout: bytes


async def run(program: Program, context: PollContext) -> Completed:
    """Run a program to its end; raise `SourceError` unless it ends with exit code 0."""
    path = program.env.get("PATH", os.defpath)
    if "/" not in program.argv[0] and shutil.which(program.argv[0], path=path) is None:
        raise SourceError(f"there is no program {program.argv[0]!r} on the PATH")
    try:
        command = spawn(program.argv, program.env, program.cwd, threads_of(context))
    except DefiniteFailure as error:
        raise SourceError(
            for_people(f"{program.name}: {error}"), retry_seconds=error.delay_seconds
        ) from None
    except RuntimeError as error:
        raise SourceError(f"{program.name} cannot be started: {error}") from None
    try:
        async with asyncio.timeout(context.timeout_seconds):
            return await _complete(program, command)
    except TimeoutError:
        raise SourceError(
            f"{program.name} did not end within {context.timeout_seconds:g} seconds"
        ) from None
    finally:
        await _end(command, min(_GRACE_SECONDS, context.limits.kill_grace_seconds))


def directory_beside(path: str | None, workflow_path: Path | None) -> str | None:
    """Return a directory that a workflow names: relative ones start at the workflow file's own."""
    base = None if workflow_path is None else workflow_path.parent.absolute()
    if path is None:
        return None if base is None else str(base)
    try:
        named = Path(path).expanduser()
    except RuntimeError as error:
        raise SourceError(f"{path}: {error}") from None
    return str(named if base is None else base / named)


async def _complete(program: Program, command: GatedProcess) -> Completed:
    stdout_reader, stderr_reader = await command.readers()
    stdout, stderr = bytearray(), bytearray()
    readers = [
        asyncio.ensure_future(_read(stdout_reader, stdout, program.most_bytes, command)),
        asyncio.ensure_future(_read_tail(stderr_reader, stderr)),
    ]
    try:
        await command.open_gate("")
        exit_code = await command.wait()
        _, still_open = await asyncio.wait(readers, timeout=_DRAIN_SECONDS)
        if still_open:
            # Children that outlive the program hold its output open.
            await command.end(_GRACE_SECONDS)
            await asyncio.wait(readers, timeout=_DRAIN_SECONDS)
    finally:
        for reader in readers:
            reader.cancel()
    if len(stdout) > program.most_bytes:
        raise SourceError(f"{program.name} printed more than {program.most_bytes} bytes")
    if exit_code != 0:
        how = f"exit code {exit_code}" if exit_code > 0 else f"signal {-exit_code}"
        raise SourceError(f"{program.name} ended with {how}{_last_lines(bytes(stderr))}")
    return Completed(bytes(stdout))


async def _read(
    reader: asyncio.StreamReader, into: bytearray, most: int, command: GatedProcess
) -> None:
    while chunk := await reader.read(_CHUNK_BYTES):
        into += chunk
        if len(into) > most:
            processes.signal_group(command.process.id, signal.SIGKILL)
            return


async def _read_tail(reader: asyncio.StreamReader, into: bytearray) -> None:
    while chunk := await reader.read(_CHUNK_BYTES):
        into += chunk
        del into[:-_TAIL_BYTES]


def _last_lines(stderr: bytes) -> str:
    text = stderr.decode("utf-8", "replace")
    if len(stderr) == _TAIL_BYTES:
        # The first line may be cut inside a secret, which redaction would not find.
        text = text.partition("\n")[2]
    lines = [line for line in everywhere.redact(text).splitlines() if line.strip()][-_TAIL_LINES:]
    return (
        "".join(["; stderr ends with:", *(f"\n{storable(line)[:300]}" for line in lines)])
        if lines
        else ""
    )


async def _end(command: GatedProcess, grace_seconds: float) -> None:
    """End every process of the group; a second cancellation kills it at once."""
    try:
        await command.end(grace_seconds)
    except BaseException:
        command.kill()
        raise
