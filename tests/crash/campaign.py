"""The campaign: kill working agents thousands of times, and count the effects.

    python -m tests.crash.campaign --sqlite 2000 --postgres 1000

On SQLite one daemon at a time works on a database, is killed with SIGKILL and started again; several
such databases run in parallel, since a start is mostly waiting. On PostgreSQL eight workers share
a database and one after another is killed and replaced. A kill comes at one of three moments: while
a process starts, at any time while it works, or just after an effect, before its response arrives.
A separate process, the world, counts the effects.

After every kill (every tenth on PostgreSQL) the checker reads the database. A round ends with agents
that are not killed; then every acknowledged task must have succeeded, with each of its effects done
exactly once.
"""

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import psycopg

from agent.store.db.database import Database
from agent.store.schema import migrate
from tests.crash.errands import INNER, KEYED, ONCE, errand, inner, misdeeds, paths
from tests.crash.processes import Agents, agents, eventually
from tests.support.fork_server import ForkedProcess, ForkServer
from tests.support.postgres import PostgresServer

HOUSEHOLDS = 3
SQLITE_ROUND = 50
POSTGRES_ROUND = 50
POSTGRES_CHECK_EVERY = 10
"""The checker reads the whole database, so it runs only after this number of kills."""
WORKERS = 8
STARTING, WORKING, AT_EFFECT = "while it started", "while it worked", "just after an effect"
PAUSE_SECONDS = 0.015
"""How long the world takes to answer: kills should often fall between an effect and its answer."""
SETTINGS = {"AGENT_SERVER__ENABLED": "false"}
POSTGRES_SETTINGS = SETTINGS | {
    "AGENT_ENGINE__LEASE_SECONDS": "3",
    "AGENT_ENGINE__SLOTS": "4",
    "AGENT_ENGINE__SOLO_SECONDS": "1",
    # An unknown effect of a dead worker is resolved only after its time to send and to wait.
    "AGENT_STEPS__SEND_WINDOW_SECONDS": "2",
    "AGENT_STEPS__CALL_SECONDS": "3",
}


class Tally:
    """The counts of a campaign, for its progress and its table."""

    def __init__(self, name: str, kills: int) -> None:
        self.name = name
        self.wanted = kills
        self.counts: Counter[str] = Counter()
        self.wrongs: list[str] = []
        self.started = time.monotonic()
        self.seconds = 0.0
        self.stopped = threading.Event()
        """Set on interrupt: rounds end early and gracefully."""
        self._lock = threading.Lock()

    def add(self, **counts: int) -> None:
        """Add to the counts."""
        with self._lock:
            self.counts.update(counts)
            self.seconds = time.monotonic() - self.started

    def killed(self, moment: str) -> None:
        """Count one kill."""
        self.add(kills=1, **{moment: 1})

    def blame(self, sentences: list[str], where: Path) -> None:
        """Record violations."""
        with self._lock:
            self.wrongs += [f"{self.name}, {where}: {sentence}" for sentence in sentences]

    def progress(self) -> str:
        """Return one line."""
        counts = self.counts
        return (
            f"{self.name}: {counts['kills']} of {self.wanted} kills, {counts['tasks']} tasks ended,"
            f" {counts['effects']} effects, {len(self.wrongs)} violations"
        )


class Round:
    """Some kills on one database, from the first task to the last."""

    def __init__(self, those: Agents, tally: Tally, chance: random.Random, crowd: int) -> None:
        self.those = those
        self.tally = tally
        self.chance = chance
        self._crowd = crowd
        self._errand = errand(those.world.url)
        self._errands: list[str] = []
        self._inner = [those.submit(inner(those.world.url))]

    @property
    def task_ids(self) -> list[str]:
        """Every task that was acknowledged."""
        return self._errands + self._inner

    def keep_busy(self) -> None:
        """Answer questions, and submit tasks until enough are open."""
        self.those.are_ended([])
        ((count,),) = self.those.rows("SELECT count(*) FROM tasks WHERE ended_at IS NULL")
        for _ in range(self._crowd - count):
            self._errands.append(self.those.submit(self._errand))

    def wait_for(self, moment: str) -> None:
        """Wait for that moment, or for at most a second if it does not come."""
        if moment == AT_EFFECT:
            record = self.those.world.record
            size = record.stat().st_size
            give_up = time.monotonic() + 1
            while record.stat().st_size == size and time.monotonic() < give_up:
                time.sleep(0.001)
        else:
            time.sleep(self.chance.uniform(0, 0.1 if moment == STARTING else 0.25))

    def check(self) -> None:
        """Run the checker on the database as it is now."""
        self.tally.blame(self.those.violations(), self.those.directory)

    def close(self, last: list[ForkedProcess]) -> None:
        """Let every task end without kills, and count."""
        those, tally = self.those, self.tally
        eventually(lambda: those.are_ended(self.task_ids), those.describe)
        for process in last:
            process.send_signal(signal.SIGTERM)
        ends = [process.wait(60) for process in last]
        wrongs = [f"a process ended with {status}" for status in ends if status != 0]
        tasks = dict(those.rows("SELECT id, status FROM tasks"))
        wrongs += [f"task {each} is gone" for each in self.task_ids if each not in tasks]
        wrongs += [
            f"task {each} {status}" for each, status in tasks.items() if status != "succeeded"
        ]
        effects = those.world.effects()
        children = tasks.keys() - set(self._errands)
        once = paths(self._errands, ONCE) | paths(children, INNER)
        wrongs += misdeeds(effects, once, paths(self._errands, KEYED))
        tally.blame(wrongs, those.directory)
        self.check()
        ((steps,),) = those.rows("SELECT count(*) FROM steps WHERE status = 'succeeded'")
        ((lost,),) = those.rows("SELECT count(*) FROM events WHERE type = 'step.lost'")
        # Those that a crash left behind name their call; the others by their attempt.
        ((unknown,),) = those.rows(
            "SELECT count(*) FROM events WHERE type = 'tool_call.unknown' AND data LIKE '%\"call\"%'"
        )
        ((asked,),) = those.rows("SELECT count(*) FROM approvals WHERE kind = 'unknown'")
        tally.add(
            rounds=1,
            tasks=len(tasks),
            steps=steps,
            effects=len(effects),
            lost=lost,
            unknown=unknown,
            asked=asked,
        )


@contextmanager
def round_of(
    tally: Tally, url: Callable[[Path], str], fork_server: ForkServer, seed: str, crowd: int
) -> Iterator[Round]:
    """Yield a round in a directory of its own, which stays if anything is wrong."""
    directory = Path(tempfile.mkdtemp(prefix="agent-campaign-"))
    settings = POSTGRES_SETTINGS if tally.name == "PostgreSQL" else SETTINGS
    known = len(tally.wrongs)
    with agents(
        directory, url(directory), settings, fork_server=fork_server, pause_seconds=PAUSE_SECONDS
    ) as those:
        yield Round(those, tally, random.Random(seed), crowd)
    if len(tally.wrongs) == known:
        shutil.rmtree(directory)


def live_on_sqlite(tally: Tally, template: Path, kills: int, seed: str) -> None:
    """Kill one daemon after another."""

    def copy(directory: Path) -> str:
        shutil.copyfile(template, directory / "agent.db")
        return f"sqlite:///{directory / 'agent.db'}"

    fork_server = ForkServer()
    try:
        while kills > 0 and not tally.stopped.is_set():
            count = min(kills, SQLITE_ROUND)
            with round_of(tally, copy, fork_server, f"{seed} {kills}", crowd=6) as current:
                for _ in range(count):
                    if tally.stopped.is_set():
                        break
                    moment = current.chance.choice(
                        (STARTING, WORKING, WORKING, AT_EFFECT, AT_EFFECT)
                    )
                    current.keep_busy()
                    daemon = current.those.start("up")
                    if moment != STARTING:
                        current.those.wait_until_alive(daemon)
                    current.wait_for(moment)
                    current.those.end(daemon, signal.SIGKILL)
                    tally.killed(moment)
                    current.check()
                current.close([current.those.start("up")])
            kills -= count
    finally:
        fork_server.close()


def live_on_postgres(tally: Tally, kills: int, seed: str) -> None:
    """Kill one of eight workers after another."""
    server = PostgresServer(is_durable=True)
    fork_server = ForkServer()
    try:
        server.start()

        def create(directory: Path) -> str:
            name = directory.name.replace("-", "_").lower()
            with psycopg.connect(server.url(), autocommit=True) as connection:
                connection.execute(f"CREATE DATABASE {name}")
            migrate.upgrade(Database(server.url(name)))
            return server.url(name)

        while kills > 0 and not tally.stopped.is_set():
            count = min(kills, POSTGRES_ROUND)
            with round_of(tally, create, fork_server, f"{seed} {kills}", crowd=16) as current:
                workers = [current.those.start("worker") for _ in range(WORKERS)]
                for number in range(count):
                    if tally.stopped.is_set():
                        break
                    moment = current.chance.choice(
                        (STARTING, WORKING, WORKING, AT_EFFECT, AT_EFFECT)
                    )
                    current.keep_busy()
                    current.wait_for(moment)
                    victim = _victim(current, workers, moment)
                    current.those.end(victim, signal.SIGKILL)
                    workers.remove(victim)
                    workers.append(current.those.start("worker"))
                    tally.killed(moment)
                    if number % POSTGRES_CHECK_EVERY == 0:
                        current.check()
                current.close(workers)
            kills -= count
    finally:
        fork_server.close()
        server.stop()


def _victim(current: Round, workers: list[ForkedProcess], moment: str) -> ForkedProcess:
    """Return the newest worker, or one that runs a step."""
    if moment == STARTING:
        return workers[-1]
    busy = current.those.rows(
        "SELECT DISTINCT w.process_id FROM workers AS w JOIN steps AS s ON s.owner = w.id"
        " WHERE s.status = 'running'"
    )
    found = [process for process in workers if (process.pid,) in busy]
    return current.chance.choice(found or workers)


def table(tallies: list[Tally]) -> str:
    """Return the campaign's result as a table in Markdown."""
    rows: list[tuple[str, Callable[[Tally], object]]] = [
        ("kills", lambda tally: tally.counts["kills"]),
        *((f"— {each}", _counted(each)) for each in (STARTING, WORKING, AT_EFFECT)),
        ("databases", _counted("rounds")),
        ("tasks acknowledged and ended", _counted("tasks")),
        ("steps", _counted("steps")),
        ("effects seen by the world", _counted("effects")),
        ("attempts lost", _counted("lost")),
        ("unknown effects", _counted("unknown")),
        ("— put to a person", _counted("asked")),
        ("effects done twice or not at all, tasks lost, violations", lambda t: len(t.wrongs)),
        ("minutes", lambda tally: f"{tally.seconds / 60:.1f}"),
    ]
    lines = ["| | " + " | ".join(tally.name for tally in tallies) + " |"]
    lines.append("|---|" + "---:|" * len(tallies))
    for title, count in rows:
        cells = (
            f"{value:,}" if isinstance(value, int) else str(value) for value in map(count, tallies)
        )
        lines.append(f"| {title} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _counted(name: str) -> Callable[[Tally], object]:
    return lambda tally: tally.counts[name]


def _watch(tallies: list[Tally], running: "list[Future[None]]") -> None:
    """Print the progress until the campaign has ended."""
    is_terminal = sys.stdout.isatty()
    printed_at = 0.0
    while not all(work.done() for work in running):
        time.sleep(0.5)
        if is_terminal or time.monotonic() - printed_at > 30:
            printed_at = time.monotonic()
            line = "; ".join(tally.progress() for tally in tallies)
            start, end = ("\r", "\x1b[K") if is_terminal else ("", "\n")
            print(f"{start}{line}", end=end, flush=True)
    if is_terminal:
        print()


def main() -> int:
    """Run the campaign; the exit code is 1 if there are violations."""
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--sqlite", type=int, default=2000, metavar="KILLS")
    options.add_argument("--postgres", type=int, default=1000, metavar="KILLS")
    options.add_argument("--seed", default=str(time.time_ns()), help="when kills come")
    chosen = options.parse_args()
    # An interrupt leaves no process running.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    print(f"seed {chosen.seed}")
    home = Path(tempfile.mkdtemp(prefix="agent-campaign-"))
    template = home / "agent.db"
    migrate.upgrade(Database(f"sqlite:///{template}"))
    tallies = []
    with ThreadPoolExecutor(HOUSEHOLDS + 1) as pool:
        running = []
        if chosen.sqlite:
            tallies.append(tally := Tally("SQLite", chosen.sqlite))
            for number in range(HOUSEHOLDS):
                share = (chosen.sqlite + number) // HOUSEHOLDS
                seed = f"{chosen.seed} {number}"
                running.append(pool.submit(live_on_sqlite, tally, template, share, seed))
        if chosen.postgres:
            tallies.append(tally := Tally("PostgreSQL", chosen.postgres))
            running.append(pool.submit(live_on_postgres, tally, chosen.postgres, chosen.seed))
        try:
            _watch(tallies, running)
        except KeyboardInterrupt:
            print("\nstopping: what was begun is still finished and checked", flush=True)
            for tally in tallies:
                tally.stopped.set()
        for work in running:
            work.result()
    shutil.rmtree(home)
    print(table(tallies))
    wrongs = [wrong for tally in tallies for wrong in tally.wrongs]
    for wrong in wrongs:
        print(wrong, file=sys.stderr)
    return 1 if wrongs else 0


if __name__ == "__main__":
    os.environ.setdefault("NO_COLOR", "1")
    sys.exit(main())
