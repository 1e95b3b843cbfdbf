"""Real processes: agents that are killed and stopped, and a world that counts their effects."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from agent.approvals import answering
from agent.approvals.permission import terminal_user
from agent.core import waits
from agent.core.waits import Approval, UnknownCall
from agent.store.db.database import Database
from agent.tasks import checker
from agent.tasks.errors import RefusedError
from agent.tasks.operator.operator import Operator
from agent.tasks.rules.creation import Submission
from agent.workflows.graph import Graph
from tests.support.approvals import resolve
from tests.support.fork_server import ForkedProcess, ForkServer, shared

ROOT = Path(__file__).parent.parent.parent
PATIENCE_SECONDS = 120.0
"""For what surely happens, on a machine that is slow and busy."""


def eventually(condition: Callable[[], Any], what: Callable[[], str]) -> Any:
    """Return the condition's first true value; fail when it does not come."""
    give_up = time.monotonic() + PATIENCE_SECONDS
    while True:
        if value := condition():
            return value
        assert time.monotonic() < give_up, what()
        time.sleep(0.05)


class World:
    """The process that counts effects."""

    def __init__(self, directory: Path, pause_seconds: float = 0) -> None:
        self.record = directory / "effects"
        address = directory / "port"
        program = Path(__file__).with_name("counter.py")
        self._process = subprocess.Popen(
            [sys.executable, program, self.record, address, str(pause_seconds)],
            stdin=subprocess.DEVNULL,
        )
        eventually(address.exists, lambda: "the counter does not start")
        self.url = f"http://127.0.0.1:{address.read_text()}"

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()

    def effects(self) -> list[tuple[str, str]]:
        """Return (path, key) of everything that was done until now."""
        # Answered after all that was sent before: nothing is on its way any more.
        request = urllib.request.Request(f"{self.url}/settled", method="POST")
        with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS):
            pass
        lines = self.record.read_text(encoding="utf-8").splitlines()
        found = [(line.split()[0], line.split()[1]) for line in lines]
        return [(path, key) for path, key in found if path != "/settled"]

    def counts(self) -> Counter[str]:
        """Return how often each path was asked for."""
        return Counter(path for path, _ in self.effects())


class Agents:
    """Agent processes on one database, and the person who answers their questions."""

    def __init__(
        self,
        directory: Path,
        url: str,
        world: World,
        settings: Mapping[str, str],
        fork_server: ForkServer | None = None,
    ) -> None:
        self.directory = directory
        self._fork_server = fork_server or shared()
        self.world = world
        self.database = Database(url)
        self.operator = Operator(self.database, self.database.clock)
        self.processes: list[ForkedProcess] = []
        inherited = {
            key: value for key, value in os.environ.items() if not key.startswith("AGENT_")
        }
        self._environment = inherited | {"PYTHONPATH": str(ROOT), "NO_COLOR": "1", **settings}
        self._environment["AGENT_DATABASE__URL"] = url
        (directory / "config.toml").write_text('[http]\nallow_private = ["127.0.0.1"]\n')

    def start(self, command: str, *, is_held: bool = False) -> ForkedProcess:
        """Start one more process; how far it has come is unknown on return."""
        process = self._fork_server.start(
            [command], self.directory, self._environment, is_held=is_held
        )
        self.processes.append(process)
        return process

    def end(self, process: ForkedProcess, number: signal.Signals) -> int:
        """Send a signal to a process and wait for its exit."""
        process.send_signal(number)
        return process.wait(PATIENCE_SECONDS)

    def close(self) -> None:
        """End whatever is left."""
        for process in self.processes:
            if process.poll() is None:
                process.kill()
                process.wait(PATIENCE_SECONDS)

    def rows(self, sql: str, **parameters: Any) -> list[tuple[Any, ...]]:
        """Run a query."""
        with self.database.connect("reader") as reader:
            return reader.query(sql, **parameters)

    def live_identities(self, process: ForkedProcess) -> list[str]:
        """Return the worker ids under which a process is alive."""
        found = self.rows(
            "SELECT id FROM workers WHERE process_id = :pid AND dead = 0", pid=process.pid
        )
        return [str(worker_id) for (worker_id,) in found]

    def wait_until_alive(self, process: ForkedProcess) -> str:
        """Wait until a process has enrolled; return its worker id."""
        found = eventually(lambda: self.live_identities(process), self.describe)
        return str(found[-1])

    def submit(self, graph: Graph) -> str:
        """Start a task from this process."""
        return self.operator.submit(Submission(graph=graph))

    def are_ended(self, task_ids: list[str]) -> bool:
        """Answer questions, and return whether all these tasks have ended."""
        self._answer_questions()
        ended = self.rows("SELECT id FROM tasks WHERE ended_at IS NOT NULL")
        return set(task_ids) <= {task_id for (task_id,) in ended}

    def _answer_questions(self) -> None:
        """Resolve each unknown effect by the world's record, and approve everything else."""
        for task_id, name, parallel_index, waiting_on in self.rows(
            "SELECT task_id, name, parallel_index, waiting_on FROM steps WHERE status = 'waiting'"
        ):
            on = waits.parse(waiting_on)
            # The worker may have recorded the result in the meantime.
            with contextlib.suppress(RefusedError):
                if isinstance(on, UnknownCall):
                    title = name if parallel_index < 0 else f"{name}[{parallel_index}]"
                    did_happen = self._did_happen(on.call_id)
                    resolve(self.database, task_id, title, "done" if did_happen else "retry")
                elif isinstance(on, Approval):
                    person = terminal_user("a person")
                    answering.answer(self.database, on.approval_id, "approve", principal=person)

    def _did_happen(self, call_id: str) -> bool:
        ((request,),) = self.rows("SELECT request FROM tool_calls WHERE id = :id", id=call_id)
        path = re.search(r"/[0-9a-f-]{36}/\w+", request)
        assert path is not None, request
        return self.world.counts()[path[0]] > 0

    def violations(self) -> list[str]:
        """Run the checker on the database."""
        with self.database.connect("reader") as reader:
            return checker.check(reader)

    def describe(self) -> str:
        """Describe the state, for the message of a failure."""
        steps = self.rows(
            "SELECT task_id, name, parallel_index, status, attempt, owner, waiting_on, error"
            " FROM steps WHERE status NOT IN ('succeeded', 'skipped')"
        )
        workers = self.rows("SELECT id, turn, dead, process_id FROM workers")
        log = (self.directory / "agents.log").read_text(errors="replace")
        return "\n".join([*map(str, steps), *map(str, workers), log[-4000:]])


@contextlib.contextmanager
def agents(
    directory: Path,
    url: str,
    settings: Mapping[str, str] | None = None,
    *,
    fork_server: ForkServer | None = None,
    pause_seconds: float = 0,
) -> Iterator[Agents]:
    """Yield agents in a world; nothing of them is left running afterwards.

    `pause_seconds` is how long the world takes to answer after it did what it was asked.
    """
    world = World(directory, pause_seconds)
    found = Agents(directory, url, world, settings or {}, fork_server)
    try:
        yield found
    finally:
        found.close()
        world.close()
