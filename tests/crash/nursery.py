"""A process that has everything loaded and forks agents, so that starting one costs little.

What it forks is the whole program in a process of its own: `agent up` as the command line runs it.
Nothing that must not be shared exists before the fork: no thread, no connection, no random number.
"""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent


class Child:
    """An agent that the nursery started; the part of `subprocess.Popen` that tests use."""

    def __init__(self, nursery: "Nursery", pid: int) -> None:
        self._nursery = nursery
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return how it ended, if it has."""
        if self.returncode is None:
            self.returncode = self._nursery.ask({"poll": self.pid})
        return self.returncode

    def wait(self, timeout: float) -> int:
        """Return how it ended, once it has."""
        give_up = time.monotonic() + timeout
        while (status := self.poll()) is None:
            if time.monotonic() > give_up:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
            time.sleep(0.002)
        return status

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it is known to have ended."""
        # Until it is polled its id belongs to nobody else.
        if self.returncode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it."""
        self.send_signal(signal.SIGKILL)


class Nursery:
    """Starts agents in no time."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.nursery"],
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
        is_held: bool = False,
    ) -> Child:
        """Start an agent; one that is held waits for SIGCONT before it does anything."""
        asked = {
            "argv": argv,
            "directory": str(directory),
            "environment": environment,
            "is_held": is_held,
        }
        return Child(self, self.ask(asked))

    def ask(self, question: dict[str, Any]) -> Any:
        """Put one question to the process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "the nursery has ended"
        return json.loads(answer)

    def close(self) -> None:
        """End it, and whatever it has started."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


def _load() -> None:
    """Import what a daemon imports in the end."""
    import agent.bootstrap
    import agent.cli.commands.run
    import agent.cli.main
    import agent.cli.output.terminal
    import agent.daemon.daemon
    import agent.models.registry
    import agent.server.bind
    import agent.steps.http.client
    import agent.steps.spec.registry
    import agent.store.db.postgres
    import agent.store.db.sqlite
    import agent.store.schema.migrate
    import agent.tasks.operator.operator
    import agent.tasks.worker.worker  # noqa: F401


def _become(asked: dict[str, Any]) -> None:
    """Be the program `agent`, in a process that was just forked; never returns."""
    status = 1
    try:
        os.chdir(asked["directory"])
        os.environ.clear()
        os.environ.update(asked["environment"])
        with Path("agents.log").open("ab") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        random.seed()
        sys.argv = ["agent", *asked["argv"]]
        if asked["is_held"]:
            os.kill(os.getpid(), signal.SIGSTOP)
        from agent.cli.main import main

        try:
            main()
            status = 0
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def _serve() -> None:
    _load()
    children: set[int] = set()
    for line in sys.stdin:
        asked = json.loads(line)
        if "poll" in asked:
            pid, status = os.waitpid(asked["poll"], os.WNOHANG)
            answer = None if pid == 0 else os.waitstatus_to_exitcode(status)
            children.discard(pid)
        else:
            answer = os.fork()
            if answer == 0:
                _become(asked)
            children.add(answer)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    for pid in children:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


if __name__ == "__main__":
    _serve()
