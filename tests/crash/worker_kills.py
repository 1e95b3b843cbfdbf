"""Eight external workers and their agent, killed at random: the judge looks at the world and the database.

A diary of the workers says which process ran which step when; the campaign knows when each process was
killed. Two processes that ran one step at the same time had a lease both: that must not happen.
"""

import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from agent.workflows.compile.compiler import compile_text
from agent.workflows.graph import Graph
from tests.crash.diary import Diary, overlaps
from tests.crash.errands import misdeeds, paths
from tests.crash.processes import ROOT, Agents, agents, eventually
from tests.crash.queue_worker import HANDLER_SECONDS, QUEUE
from tests.support.fork_server import ForkedProcess, ForkServer
from tests.support.free_port import free_port

WORKERS = 8
LEASE_SECONDS = 3
PAUSE_SECONDS = 0.015
AIMED = 0.8
"""The part of kills that wait until a handler runs; the others hit any moment."""
MOMENT_SECONDS = 10.0
"""How long such a kill waits: after a kill of the agent nothing runs for seconds."""
_SETTINGS = {
    "AGENT_ENGINE__LEASE_SECONDS": "3",
    "AGENT_STEPS__SEND_WINDOW_SECONDS": "1",
    "AGENT_STEPS__CALL_SECONDS": "2",
}
ONCE = ("first", "many0", "many1", "many2", "last")
KEYED = ("keyed",)
# Every kill counts as an attempt of what was running.
_WORKFLOW = f"""\
name: errand
defaults: {{retry: {{max_attempts: 1000, delay: 0s, jitter: false}}}}
steps:
  first:
    worker: {{queue: {QUEUE}, with: {{path: "/{{{{ task.id }}}}/first"}}, lease: {LEASE_SECONDS}s, start_within: 5s, effect: once}}
  keyed:
    depends_on: [first]
    worker: {{queue: {QUEUE}, with: {{path: "/{{{{ task.id }}}}/keyed"}}, lease: {LEASE_SECONDS}s, start_within: 5s}}
  many:
    depends_on: [first]
    parallel: 3
    worker: {{queue: {QUEUE}, with: {{path: "/{{{{ task.id }}}}/many{{{{ parallel_index }}}}"}}, lease: {LEASE_SECONDS}s, start_within: 5s, effect: once}}
  last:
    depends_on: [keyed, many]
    worker: {{queue: {QUEUE}, with: {{path: "/{{{{ task.id }}}}/last"}}, lease: {LEASE_SECONDS}s, start_within: 5s, effect: once}}
"""


def errand() -> Graph:
    """Return the task whose every step is done outside."""
    return compile_text(_WORKFLOW, "errand.yaml")


@dataclass
class Kills:
    """What happened in one round, and what is wrong with it."""

    counts: Counter[str] = field(default_factory=Counter)
    wrongs: list[str] = field(default_factory=list)


class Round:
    """One database, its agent and its external workers, from the first task to the last."""

    def __init__(self, those: Agents, port: int, seed: str, crowd: int) -> None:
        self._those = those
        self._crowd = crowd
        self._server = f"http://127.0.0.1:{port}"
        self._chance = random.Random(seed)
        self._diary = Diary(those.directory / "diary")
        self._killed_at: dict[int, float] = {}
        self._task_ids: list[str] = []
        self._errand = errand()
        self.kills = Kills()
        self._daemon = self._start_daemon()
        self._workers = [self._start_worker() for _ in range(WORKERS)]

    def strike(self) -> None:
        """Kill one process at a random moment, in most cases while handlers run, and start another."""
        self._keep_busy()
        is_aimed = self._chance.random() < AIMED
        if is_aimed:
            self._wait_for_handlers()
        else:
            time.sleep(self._chance.uniform(0, 0.3))
        counts = self.kills.counts
        if self._chance.random() < 0.3:
            self._those.end(self._daemon, signal.SIGKILL)
            counts["agents"] += 1
            # Handlers go on without their agent: those that run now had begun before it died.
            counts["agents while handlers ran"] += bool(self._busy())
            self._daemon = self._start_daemon()
        else:
            self._kill_worker(is_aimed=is_aimed)

    def _kill_worker(self, *, is_aimed: bool) -> None:
        """Kill a worker; count whether its handler ran, and whether it held a lease."""
        busy = self._busy() if is_aimed else []
        number = self._chance.choice(busy or range(WORKERS))
        worker, counts = self._workers[number], self.kills.counts
        self._kill(worker)
        counts["workers"] += 1
        counts["workers in a handler"] += worker.pid in self._diary.running()
        ((leases,),) = self._those.rows(
            "SELECT count(*) FROM work WHERE leased_by = :name",
            name=f"{socket.gethostname()}:{worker.pid}",
        )
        counts["workers with a lease"] += leases > 0
        self._workers[number] = self._start_worker()

    def _wait_for_handlers(self) -> None:
        """Wait until a handler runs, and then for a random part of its time."""
        give_up = time.monotonic() + MOMENT_SECONDS
        while not self._busy() and time.monotonic() < give_up:
            time.sleep(0.002)
        time.sleep(self._chance.uniform(0, HANDLER_SECONDS / 2))

    def _busy(self) -> list[int]:
        """Return the numbers of workers whose handlers run."""
        running = self._diary.running()
        return [number for number, each in enumerate(self._workers) if each.pid in running]

    def check(self) -> None:
        """Run the checker on the database as it is now."""
        self.kills.wrongs += self._those.violations()

    def close(self) -> Kills:
        """Let every task end without kills, end the processes, and judge."""
        those = self._those
        eventually(lambda: those.are_ended(self._task_ids), those.describe)
        for worker in self._workers:
            worker.send_signal(signal.SIGTERM)
        for worker in self._workers:
            # One that was just started does not handle the signal yet.
            if (code := worker.wait(60)) not in (0, -signal.SIGTERM):
                self.kills.wrongs.append(f"a worker ended with {code}")
        if (code := those.end(self._daemon, signal.SIGTERM)) != 0:
            self.kills.wrongs.append(f"the agent ended with {code}")
        self._judge()
        return self.kills

    def end_processes(self) -> None:
        """Kill what is left of the workers."""
        for worker in self._workers:
            if worker.poll() is None:
                self._kill(worker)

    def _judge(self) -> None:
        those, wrongs = self._those, self.kills.wrongs
        statuses = dict(those.rows("SELECT id, status FROM tasks"))
        wrongs += [f"task {each} is gone" for each in self._task_ids if each not in statuses]
        wrongs += [
            f"task {each} {status}" for each, status in statuses.items() if status != "succeeded"
        ]
        effects = those.world.effects()
        wrongs += misdeeds(effects, paths(self._task_ids, ONCE), paths(self._task_ids, KEYED))
        runs = self._diary.runs(self._killed_at)
        wrongs += overlaps(runs)
        self.check()
        ((unknown,),) = those.rows("SELECT count(*) FROM approvals WHERE kind = 'unknown'")
        self.kills.counts.update(
            tasks=len(statuses), effects=len(effects), runs=len(runs), asked=unknown
        )

    def _keep_busy(self) -> None:
        self._those.are_ended([])
        ((count,),) = self._those.rows("SELECT count(*) FROM tasks WHERE ended_at IS NULL")
        for _ in range(self._crowd - count):
            self._task_ids.append(self._those.submit(self._errand))

    def _start_daemon(self) -> ForkedProcess:
        return self._those.start("up")

    def _start_worker(self) -> "subprocess.Popen[bytes]":
        token = eventually(self._token, lambda: "the agent makes no token")
        with (self._those.directory / "agents.log").open("ab") as log:
            return subprocess.Popen(
                [
                    *(sys.executable, "-m", "tests.crash.queue_worker"),
                    *(self._server, self._those.world.url, self._diary.path),
                ],
                cwd=ROOT,
                env={**os.environ, "AGENT_TOKEN": token},
                stdin=subprocess.DEVNULL,
                stderr=log,
            )

    def _token(self) -> str:
        with suppress(FileNotFoundError):
            return (self._those.directory / "data" / "token").read_text().strip()
        return ""

    def _kill(self, worker: "subprocess.Popen[bytes]") -> None:
        worker.kill()
        worker.wait()
        self._killed_at[worker.pid] = time.monotonic()


@contextmanager
def round_of(
    directory: Path, url: str, seed: str, fork_server: ForkServer | None = None, *, crowd: int = 6
) -> Iterator[Round]:
    """Yield a round with this number of open tasks; none of its processes is left running afterwards."""
    port = free_port()
    settings = {**_SETTINGS, "AGENT_SERVER__PORT": str(port)}
    with agents(
        directory, url, settings, fork_server=fork_server, pause_seconds=PAUSE_SECONDS
    ) as those:
        current = Round(those, port, seed, crowd)
        try:
            yield current
        finally:
            current.end_processes()
