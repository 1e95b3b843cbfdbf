"""A process that has the program loaded and forks it, so that starting an agent costs little.

What it forks is the whole program in a process of its own: the command line with its arguments, its
directory, its environment and its files. Importing the program takes
most of a second; a fork takes a hundredth. Nothing that must not be shared exists before the fork:
no thread, no connection, no random number.

A test of how a process starts (its imports, its limits, another version of the code) needs a fresh
interpreter: `subprocess` and `sys.executable`.
"""

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import pkgutil
import random
import signal
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any, NoReturn, TextIO

import agent

ROOT = Path(__file__).parent.parent.parent

_LIBRARIES = (
    # Loaded where a database is first migrated.
    "alembic.command",
    "alembic.ddl.postgresql",
    "alembic.runtime.environment",
    "mako.template",
    "sqlalchemy.dialects.postgresql",
    "sqlalchemy.dialects.sqlite",
    "sqlmodel",
    # Loaded where a daemon opens its database, and starts to serve and to watch.
    "apscheduler.executors.asyncio",
    "psycopg",
    "pydantic.v1",
    "pysqlite3.dbapi2",
    "typer._click.decorators",
    "uvicorn.lifespan.on",
    "uvicorn.loops.auto",
    "uvicorn.protocols.http.httptools_impl",
    "watchfiles",
)
_SELDOM_LOADED = (
    "agent.channels.messages.slack_sender",
    "agent.models.anthropic",
    "agent.models.openai",
    "agent.store.schema.channel_tables",
    "agent.store.schema.migrations",
    "agent.store.schema.state_tables",
    "agent.store.schema.work_tables",
    "agent.store.schema.tables",
)
"""Few commands need these, and they take longer to load than all others."""


class ForkedProcess:
    """A process that the server started; the part of `subprocess.Popen` that tests use."""

    def __init__(self, server: "ForkServer", pid: int) -> None:
        self._server = server
        self.pid = pid
        self.returncode: int | None = None
        self.stdout: TextIO | None = None

    def poll(self) -> int | None:
        """Return how it ended, if it has."""
        if self.returncode is None:
            self.returncode = self._server.ask({"poll": self.pid})
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Return how it ended, once it has."""
        began, pause = time.monotonic(), 0.001
        while (status := self.poll()) is None:
            if timeout is not None and time.monotonic() > began + timeout:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
            time.sleep(pause)
            pause = min(pause * 1.5, 0.02)
        return status

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it is known to have ended."""
        # Until it is polled no other process can get its id.
        if self.returncode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it."""
        self.send_signal(signal.SIGKILL)


class ForkServer:
    """Starts agents in no time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.fork_server"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def start(
        self,
        argv: list[str],
        directory: Path,
        environment: dict[str, str],
        *,
        stdin: Path | None = None,
        stdout: Path | None = None,
        stderr: Path | None = None,
        is_held: bool = False,
    ) -> ForkedProcess:
        """Start an agent; output goes to files, by default to `agents.log` in its directory.

        An agent that is held waits for SIGCONT before it does anything.
        """
        log = directory / "agents.log"
        request = {
            "argv": argv,
            "directory": str(directory),
            "environment": environment,
            "stdin": str(stdin or os.devnull),
            "stdout": str(stdout or log),
            "stderr": str(stderr or log),
            "is_held": is_held,
        }
        return ForkedProcess(self, self.ask(request))

    def ask(self, question: dict[str, Any]) -> Any:
        """Put one question to the process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            self._process.stdin.write(json.dumps(question) + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        assert answer, "the fork server has ended"
        return json.loads(answer)

    def close(self) -> None:
        """End it, and whatever it has started."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


@functools.cache
def shared() -> ForkServer:
    """Return the one server of this process; it ends with it."""
    server = ForkServer()
    atexit.register(server.close)
    return server


def _load() -> None:
    """Import what commands and daemons import in the end."""
    for name in _LIBRARIES:
        importlib.import_module(name)
    for module in pkgutil.walk_packages(agent.__path__, "agent."):
        if not module.name.startswith(_SELDOM_LOADED) and not module.name.endswith("__main__"):
            importlib.import_module(module.name)


def _serve() -> dict[str, Any] | None:
    """Fork until the input ends; return the request in each forked process, nothing in this one."""
    children: set[int] = set()
    ended: dict[int, int] = {}
    # Beside the program's own streams: those are still untouched after a fork.
    questions = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    for line in questions:
        request: dict[str, Any] = json.loads(line)
        if "poll" in request:
            pid = request["poll"]
            if pid not in ended and (found := os.waitpid(pid, os.WNOHANG))[0] == pid:
                ended[pid] = os.waitstatus_to_exitcode(found[1])
                children.discard(pid)
            answer = ended.get(pid)
        else:
            answer = os.fork()
            if answer == 0:
                return request
            children.add(answer)
            ended.pop(answer, None)  # an id that is used again
        os.write(1, json.dumps(answer).encode() + b"\n")
    for pid in children:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return None


def _become(request: dict[str, Any]) -> NoReturn:
    """Be the program `agent`, in a process that was just forked; end as an interpreter does."""
    os.chdir(request["directory"])
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    if request["stdin"].startswith("/dev/pts/"):
        # The terminal that a session's leader opens first is the one whose Ctrl-C reaches it.
        os.setsid()
    redirect(0, request["stdin"], os.O_RDONLY)
    redirect(1, request["stdout"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    redirect(2, request["stderr"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    if os.isatty(0):
        # The server's own streams are of another kind: they buffer whole blocks.
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stdout = open(1, "w", buffering=1, encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", buffering=1, encoding="utf-8", closefd=False)  # noqa: SIM115
    random.seed()
    sys.argv = ["agent", *request["argv"]]
    sys.path[0] = request["directory"]  # as `python -m` has it
    if request["is_held"]:
        os.kill(os.getpid(), signal.SIGSTOP)
    status = run_program()
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    # Freeing what was loaded would first copy all of it from the server.
    os._exit(status)


def run_program() -> int:
    """Run the command; return its status."""
    from agent.cli.main import main

    try:
        main()
    except SystemExit as end:
        if isinstance(end.code, str):
            sys.stderr.write(f"{end.code}\n")
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def redirect(descriptor: int, path: str, flags: int) -> None:
    """Open a file as one of the process's streams."""
    opened = os.open(path, flags, 0o666)
    os.dup2(opened, descriptor)
    os.close(opened)


if __name__ == "__main__":
    _load()
    gc.freeze()
    if (request_ := _serve()) is not None:
        _become(request_)
