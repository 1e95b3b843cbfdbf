"""An agent in a directory of its own, for the tests that run over every executor."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from agent.store.db.database import Database
from agent.tasks.read_models import step_attempts, task_documents
from tests.support.cli import ROOT, Cli, Process

CLUSTERS = os.environ.get("AGENT_TEST_CLUSTERS") == "1"
EXECUTORS = ("local", "process", "job", *(("ray", "dask") if CLUSTERS else ()))
JOBS = ("job", "ray", "dask")
PATIENCE_SECONDS = 120.0

FUNCTIONS = '''
"""The functions of the conformance tests; files in `notes` tell the test what happened."""

import asyncio
import logging
import os
import time
from pathlib import Path

NOTES = Path(__file__).parent / "notes"


def note(name):
    """Say that something happened, and in which process."""
    NOTES.mkdir(exist_ok=True)
    with (NOTES / name).open("a") as file:
        file.write(f"{os.getpid()}\\n")


def works(n, ctx):
    print("printed", n)
    logging.getLogger("conformance").warning("logged")
    ctx.log("written")
    return {
        "n": n,
        "step": ctx.step,
        "attempt": ctx.attempt,
        "item": ctx.input["item"],
        "large": "x" * 300_000,
    }


def fails():
    raise ValueError("this does not work")


async def sleeps(name):
    note(name)
    await asyncio.sleep(100)
    note(name + "-awake")


def counts(name, ctx):
    note(name)
    done = ctx.checkpoint or 0
    while done < 5:
        while done == 2 and not (NOTES / "proceed").exists():
            time.sleep(0.05)
            ctx.save(done)
        done += 1
        ctx.save(done)
    return {"done": done, "began_at": ctx.checkpoint}


def dies_once(name):
    note(name)
    if len((NOTES / name).read_text().split()) == 1:
        time.sleep(100)
    return "alive"


def acts(name):
    note(name)
    time.sleep(100)


def acts_slowly(name):
    note(name)
    while not (NOTES / "finish").exists():
        time.sleep(0.05)
    note(name + "-done")
    return {"acted": name}
'''

WORKFLOW = """
name: {name}
inputs: {{item: {{type: string, default: one}}}}
steps:
  it:
    {kind}: {config}
    executor: {executor}
    retry: {{max_attempts: {attempts}, delay: 0s, jitter: false}}
    {more}
"""

CONFIGURATION = """
[server]
enabled = false
[engine]
lease_seconds = 5.0
shutdown_seconds = 5.0
[steps]
call_seconds = 1.0
send_window_seconds = 5.0
[shell]
kill_grace_seconds = 1.0
[executors.process]
processes = 2
[executors.job]
command = ["{python}", "-m", "agent.cli", "job"]
inherit = ["PYTHONPATH"]
poll_seconds = 0.2
status_seconds = 0.5
heartbeat_seconds = 20.0
start_seconds = 60.0
[executors.ray]
address = "{ray}"
[executors.dask]
address = "{dask}"
"""


class Place:
    """One directory with an agent, whose steps all run by one executor."""

    def __init__(self, executor: str, directory: Path, addresses: dict[str, str]) -> None:
        self.executor = executor
        self.cli = Cli(directory)
        self.cli.write(
            "config.toml",
            CONFIGURATION.format(python=sys.executable, **{"ray": "auto", "dask": "", **addresses}),
        )
        self.cli.write("workflows/functions.py", FUNCTIONS)
        self.notes = directory / "workflows" / "notes"
        self._database = Database(f"sqlite:///{directory}/data/agent.db")
        self._stack = ExitStack()
        self.daemon: Process
        self.start()

    def start(self) -> None:
        """Start the agent."""
        self.daemon = self._stack.enter_context(self.cli.daemon())

    def kill(self) -> None:
        """Kill the agent as the kernel would."""
        self.daemon.kill()
        self.daemon.wait()
        self._stack.close()

    def stop(self) -> None:
        """Stop the agent with SIGTERM."""
        self._stack.close()

    def run(self, name: str, kind: str, config: str, *, attempts: int = 1, more: str = "") -> str:
        """Start a task of one step; return its id."""
        text = WORKFLOW.format(
            name=name,
            kind=kind,
            config=config,
            executor=self.executor,
            attempts=attempts,
            more=more,
        )
        path = self.cli.write(f"{name}.yaml", text)
        path = path.rename(self.cli.directory / "workflows" / path.name)
        result = self.cli("run", str(path), "--json")
        return str(result.json["id"])

    def ended(self, task_id: str, *statuses: str) -> dict[str, Any]:
        """Wait for the end of a task, or for one of these statuses; return its step."""
        wanted = statuses or ("succeeded", "failed", "canceled")
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            with self._database.connect("reader") as connection:
                task = task_documents.task_document(connection, task_id)
            if task["status"] in wanted or task["activity"] in wanted:
                return dict(task["steps"][0])
            assert time.monotonic() < deadline, task
            time.sleep(0.1)

    def asked(self, task_id: str) -> None:
        """Wait until a person is asked about an unknown effect."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while "unknown" not in (self.inspect(task_id)["waiting_on"] or {}):
            assert time.monotonic() < deadline, self.inspect(task_id)
            time.sleep(0.2)

    def noted(self, name: str, count: int = 1) -> list[int]:
        """Wait until a function has said so this often; return the ids of its processes."""
        path, deadline = self.notes / name, time.monotonic() + PATIENCE_SECONDS
        while True:
            found = path.read_text().split() if path.exists() else []
            if len(found) >= count:
                return [int(each) for each in found]
            assert time.monotonic() < deadline, f"{name}: {found}"
            time.sleep(0.05)

    def times(self, name: str) -> int:
        """Return how often a function has said so by now."""
        path = self.notes / name
        return len(path.read_text().split()) if path.exists() else 0

    def say(self, name: str) -> None:
        """Let a function that waits for a file go on."""
        self.notes.mkdir(exist_ok=True)
        (self.notes / name).touch()

    def log(self, task_id: str) -> str:
        """Return the log of a task."""
        pieces = [piece for each in self.inspect(task_id)["attempts"] for piece in each["log"]]
        return "\n".join(piece["text"] for piece in pieces)

    def inspect(self, task_id: str) -> dict[str, Any]:
        """Return the step with its attempts."""
        # Read here: commands that poll take more processor time than all else.
        with self._database.connect("reader") as connection:
            return dict(step_attempts.step_document(connection, task_id, "it"))


def has_ended(process_id: int) -> bool:
    """Whether a process has ended, or waits to be reaped."""
    try:
        stat = Path(f"/proc/{process_id}/stat").read_text()
    except OSError:
        return True
    return stat.rpartition(")")[2].split()[0] == "Z"


@contextmanager
def background(*command: str) -> Iterator[None]:
    """Run a program of a cluster for as long as the block lasts."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command,
        env=environment,
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            yield
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
