"""One process of the pool, as its agent sees it: it calls one function at a time."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from typing import Final

from agent.core.files import file_descriptors
from agent.core.thread_bridge import UnboundedThreads
from agent.steps.attempt.context import StepContext
from agent.steps.executors import messages
from agent.steps.executors.context_server import ContextServer, raised
from agent.steps.executors.messages import Message
from agent.steps.process import processes
from agent.steps.process.output_capture import ending
from agent.steps.process.processes import watcher_marks
from agent.steps.types.errors import DefiniteFailure, OutOfDescriptorsError
from agent.steps.types.outcome import Json
from agent.steps.types.value_sizes import SMALL_BYTES

START_SECONDS: Final = 60.0
_TAIL_CHARS: Final = 4000
_SIGNALS: Final = {
    signal.SIGKILL: "the kernel's out-of-memory killer, or a kill from outside",
    signal.SIGXCPU: "its limit cpu_seconds is used up",
    signal.SIGSEGV: "a crash of native code",
    signal.SIGABRT: "a crash of native code",
    signal.SIGBUS: "a crash of native code",
}


class ProcessDiedError(Exception):
    """The process of a step ended while it called the step's function."""

    def __init__(self, message: str, code: str = "process_died") -> None:
        super().__init__(message)
        self.message = message
        self.code = code


class WorkerProcess:
    """A process and the connection to it."""

    def __init__(
        self, child: subprocess.Popen[bytes], output: int, threads: UnboundedThreads
    ) -> None:
        self.id = child.pid
        self.is_usable = True
        """Whether it can be given another function."""
        self._exit = threads.start(child.wait)
        self._output: int | None = output
        self._tail = ""
        self._context: StepContext | None = None
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter

    async def connect(self, connection: socket.socket) -> None:
        """Say hello and wait until it is ready."""
        self._reader, self._writer = await asyncio.open_connection(sock=connection)
        assert self._output is not None
        loop = asyncio.get_running_loop()
        loop.add_reader(self._output, self._read_output)
        self._send({"path": sys.path})
        try:
            async with asyncio.timeout(START_SECONDS):
                if await messages.read(self._reader) is not None:
                    return
        except TimeoutError:
            pass
        finally:
            self.is_usable = False
        self.kill()
        raise DefiniteFailure(
            f"a process for the step could not be started{ending(self._tail)}",
            code="cannot_start",
            kind="crash",
        )

    async def call(
        self, call: str, arguments: dict[str, Json], limits: dict[str, int], context: StepContext
    ) -> Json:
        """Call a function and return its output; raise what it raised, or `ProcessDiedError`."""
        server = ContextServer(context, self._send)
        self._context, self._tail, self.is_usable = context, "", False
        run = {
            "call": call,
            "source_path": context.attempt_input.task.source_path,
            "with": arguments,
            "limits": limits,
            "facts": server.facts(),
        }
        self._send({"run": run})
        problem: BaseException = ProcessDiedError("it ended")
        try:
            message = await self._serve(server)
            if message is None:
                problem = await self._death(limits)
                raise problem
        except BaseException as interruption:
            problem = interruption
            raise
        finally:
            server.close(problem)
        self._read_output()
        self._context = None
        self.is_usable = bool(message["is_reusable"])
        return _result(message["done"])

    async def _serve(self, server: ContextServer) -> Message | None:
        """Pass messages to the server until the function has ended; None if the process has."""
        while (data := await messages.read(self._reader)) is not None:
            is_small = len(data) <= SMALL_BYTES
            message = json.loads(data) if is_small else await asyncio.to_thread(json.loads, data)
            if "done" in message:
                return dict(message)
            server.take(message)
        return None

    async def _death(self, limits: dict[str, int]) -> ProcessDiedError:
        """Say how the process ended."""
        # Processes that it started may hold the connection open, or its output.
        exit_code: int = await asyncio.shield(self._exit)
        self._read_output()
        if exit_code >= 0:
            return ProcessDiedError(
                f"the step's code ended its process with exit code {exit_code} (os._exit)"
            )
        number = signal.Signals(-exit_code)
        cause, code = _SIGNALS.get(number, "a signal"), "process_died"
        if number is signal.SIGXCPU and "cpu_seconds" in limits:
            cause = f"it used more processor time than its limit of {limits['cpu_seconds']} s"
            code = "cpu_limit"
        elif "memory" in limits and number in (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS):
            cause += f", or its limit of {limits['memory']:,} bytes of memory"
        return ProcessDiedError(f"the process of the step ended by {number.name}: {cause}", code)

    async def end(self, grace_seconds: float) -> None:
        """End it with all its children: stop its function, SIGKILL after the grace time."""
        self.is_usable = False
        self._send({"stop": True})
        processes.signal_group(self.id, signal.SIGTERM)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + grace_seconds
        # It goes on to say that it has stopped, or ends.
        reading = asyncio.ensure_future(self._stopped())
        await asyncio.wait([reading], timeout=max(0.0, deadline - loop.time()))
        reading.cancel()
        self.kill()
        await asyncio.shield(self._exit)

    async def _stopped(self) -> None:
        while (data := await messages.read(self._reader)) is not None:
            message = json.loads(data)
            if "done" in message:
                return
            if "log" in message and self._context is not None:
                self._context.log_text(message["log"], message["text"])

    def kill(self) -> None:
        """Kill it and all its children at once."""
        self.is_usable = False
        processes.signal_group(self.id, signal.SIGKILL)
        self._read_output()
        if self._output is not None:
            asyncio.get_running_loop().remove_reader(self._output)
            os.close(self._output)
            self._output = None
        self._writer.close()

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended by itself."""
        return self._exit.done()

    def _send(self, message: Message) -> None:
        if not self._writer.is_closing():
            self._writer.write(messages.encode(message))

    def _read_output(self) -> None:
        """Read what it wrote past Python's own streams: crashes, native code, its children."""
        while self._output is not None:
            try:
                data = os.read(self._output, 65_536)
            except BlockingIOError:
                return
            if not data:
                asyncio.get_running_loop().remove_reader(self._output)
                os.close(self._output)
                self._output = None
                return
            text = data.decode("utf-8", "replace")
            self._tail = (self._tail + text)[-_TAIL_CHARS:]
            if self._context is not None:
                self._context.log_text("stderr", text.removesuffix("\n"))


def _result(message: Message) -> Json:
    problem = message.get("problem")
    if problem is None:
        return message["output"]
    if problem["type"] == "memory":
        raise ProcessDiedError(problem["message"], "memory_limit")
    raise raised(problem)


async def start(threads: UnboundedThreads) -> WorkerProcess:
    """Start a process and wait until it is ready."""
    process, connection = _spawn(threads)
    await process.connect(connection)
    process.is_usable = True
    return process


def _spawn(threads: UnboundedThreads) -> tuple[WorkerProcess, socket.socket]:
    try:
        ours, theirs = socket.socketpair()
        reading, writing = os.pipe()
    except OSError as error:
        if file_descriptors.is_exhaustion(error):
            raise OutOfDescriptorsError("a process") from None
        raise
    os.set_blocking(reading, False)
    try:
        child = subprocess.Popen(
            [sys.executable, "-m", "agent.steps.executors.worker_main", str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=writing,
            stderr=writing,
            pass_fds=[theirs.fileno()],
            # A step's code sees the agent's environment here as in the agent's own process.
            env={**os.environ, **watcher_marks()},
            start_new_session=True,
        )
    except OSError as error:
        ours.close()
        os.close(reading)
        text = f"a process for the step cannot be started: {error}"
        raise DefiniteFailure(text, code="cannot_start", kind="limit") from None
    finally:
        theirs.close()
        os.close(writing)
    file_descriptors.restore_limit(child.pid)
    return WorkerProcess(child, reading, threads), ours
