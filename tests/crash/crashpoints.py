"""Crash points: a daemon is killed at every sync of a golden workload, and again while it recovers.

    python -m tests.crash.crashpoints

A daemon is killed at each sync of the workload. The next daemon on the same files is killed at each
of its own syncs, one after the other. The same workload runs with EIO and with ENOSPC as the result
of each sync. On PostgreSQL the server is restarted under working agents every few seconds. In all
cases the next start without faults must bring every acknowledged task to its end, with each effect
done exactly once and no violation.
"""

import argparse
import contextlib
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import psycopg

from agent.store.db.database import Database, StoreError
from agent.store.schema import migrate
from tests.crash import tracing
from tests.crash.campaign import SETTINGS, Tally, round_of
from tests.crash.errands import GOLDEN, golden, misdeeds, paths
from tests.crash.processes import PATIENCE_SECONDS, Agents, agents
from tests.crash.tracing import Error, Tracer
from tests.support.fork_server import ForkServer
from tests.support.postgres import PostgresServer

MOST_SYNCS = 60
RESTARTS = 20
EACH_SYNC = "signal=STOP"


class Points:
    """One golden task that runs again and again, each time with a fault at another sync."""

    def __init__(self, those: Agents, template: Path) -> None:
        self.those = those
        self.counts: Counter[str] = Counter()
        self._template = template
        self._path = those.directory / "agent.db"
        self._trace = those.directory / "trace"
        self._task_id = ""

    def begin(self) -> None:
        """Put a fresh database in place, with one acknowledged task."""
        for path in self._files():
            if path != self._path:
                path.unlink()
        # Into the same file: another one in its place would be refused.
        shutil.copyfile(self._template, self._path)
        self.those.world.record.write_bytes(b"")
        self._task_id = self.those.submit(golden(self.those.world.url))

    def kill(self, at: int | None) -> bool:
        """Run a daemon until its Nth sync, or to the end; return whether that sync came."""
        with self._person() as is_over, self._traced(EACH_SYNC) as tracer:
            return tracer.watch(at, is_over.is_set)

    def fail(self, error: Error, at: int) -> bool:
        """Run a daemon with an error at each thread's Nth sync; return whether there was one."""
        with self._person() as is_over, self._traced(f"error={error}:when={at}") as tracer:
            give_up = time.monotonic() + PATIENCE_SECONDS
            while not is_over.is_set() and tracer.process.poll() is None:
                assert time.monotonic() < give_up, self.those.describe()
                time.sleep(0.005)
        return any("INJECTED" in line for line in tracer.lines())

    def finish(self, where: str) -> None:
        """Run a daemon without faults to the end, and check everything."""
        those = self.those
        with self._person() as is_over:
            daemon = those.start("up")
            those.wait_until_alive(daemon)
            assert is_over.wait(PATIENCE_SECONDS), f"{where}: {those.describe()}"
            assert those.end(daemon, signal.SIGTERM) == 0, f"{where}: {those.describe()}"
        found = those.rows("SELECT id, status FROM tasks")
        assert found == [(self._task_id, "succeeded")], f"{where}: {found}"
        wrongs = those.violations()
        wrongs += misdeeds(those.world.effects(), paths([self._task_id], GOLDEN))
        assert wrongs == [], f"{where}: {wrongs}"
        self.counts["finished"] += 1

    def keep(self) -> dict[Path, bytes]:
        """Return the present state: the files, and the effects so far."""
        record = self.those.world.record
        return {path: path.read_bytes() for path in [*self._files(), record]}

    def go_back(self, kept: dict[Path, bytes]) -> None:
        """Restore a state."""
        for path in self._files():
            if path not in kept:
                path.unlink()
        for path, content in kept.items():
            path.write_bytes(content)

    def _files(self) -> list[Path]:
        return [*self._path.parent.glob("agent.*"), *self._path.parent.glob("unsettled-*")]

    @contextlib.contextmanager
    def _traced(self, what: str) -> Iterator[Tracer]:
        tracer = Tracer(self.those.start("up", is_held=True), self._trace, what)
        try:
            yield tracer
        finally:
            if tracer.process.poll() is None:
                # Its work is done; the syncs of its shutdown would be more of the same.
                tracer.process.kill()
                tracer.process.wait(PATIENCE_SECONDS)
            tracer.close()

    @contextlib.contextmanager
    def _person(self) -> Iterator[threading.Event]:
        """Answer questions beside the daemon; the event is set once the task has ended."""
        is_over, is_leaving = threading.Event(), threading.Event()

        def be() -> None:
            while not is_leaving.wait(0.02):
                # A daemon stopped in a commit holds the lock, and the disk may fail here too.
                with contextlib.suppress(StoreError):
                    if self.those.are_ended([self._task_id]):
                        is_over.set()

        thread = threading.Thread(target=be)
        thread.start()
        try:
            yield is_over
        finally:
            is_leaving.set()
            thread.join()


def run_on_sqlite(points: Points, *, is_deep: bool, most: int) -> None:
    """Run all crash points."""
    counts = points.counts
    for at in range(1, most + 1):
        points.begin()
        if not points.kill(at):
            counts["syncs"] = at - 1
            break
        kept = points.keep()
        points.finish(f"killed at sync {at}")
        counts["killed"] += 1
        for again in range(1, most + 1) if is_deep else ():
            points.go_back(kept)
            if not points.kill(again):
                break
            points.finish(f"killed at sync {at}, then at sync {again}")
            counts["killed again"] += 1
        _print_progress(counts)
    for error in get_args(Error):
        for at in range(1, most + 1):
            points.begin()
            if not points.fail(error, at):
                break
            points.finish(f"{error} at sync {at}")
            counts[error] += 1
            _print_progress(counts)


def _print_progress(counts: Counter[str]) -> None:
    line = ", ".join(f"{name} {count}" for name, count in counts.items())
    print(f"\r{line}\x1b[K" if sys.stdout.isatty() else line, end="", flush=True)
    if not sys.stdout.isatty():
        print()


def run_on_postgres(restarts: int) -> Tally:
    """Restart the server again and again under two working agents."""
    tally = Tally("PostgreSQL", restarts)
    server = PostgresServer(is_durable=True)
    fork_server = ForkServer()
    try:
        server.start()
        with psycopg.connect(server.url(), autocommit=True) as connection:
            connection.execute("CREATE DATABASE restarted")
        migrate.upgrade(Database(server.url("restarted")))
        with round_of(
            tally, lambda _: server.url("restarted"), fork_server, "restarts", crowd=8
        ) as current:
            workers = [current.those.start("worker") for _ in range(2)]
            for number in range(restarts):
                until = time.monotonic() + current.chance.uniform(1, 4)
                while time.monotonic() < until:
                    current.keep_busy()
                    time.sleep(0.05)
                # An orderly restart and a crash alternate.
                server.restart(signal.SIGINT if number % 2 else signal.SIGQUIT)
                tally.killed("restarts")
                assert all(worker.poll() is None for worker in workers), current.those.describe()
                print(tally.progress().replace("kills", "restarts"), flush=True)
            current.close(workers)
    finally:
        fork_server.close()
        server.stop()
    return tally


def main() -> int:
    """Run everything; the exit code is 1 if there are violations."""
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--once", action="store_true", help="do not kill what recovers")
    options.add_argument("--most", type=int, default=MOST_SYNCS, help="syncs at most")
    options.add_argument("--restarts", type=int, default=RESTARTS, help="of the PostgreSQL server")
    chosen = options.parse_args()
    if not tracing.is_possible():
        print("strace is needed, and must be allowed to trace (Debian: apt install strace)")
        return 2
    began = time.monotonic()
    directory = Path(tempfile.mkdtemp(prefix="agent-crashpoints-"))
    template = directory / "template.db"
    migrate.upgrade(Database(f"sqlite:///{template}"))
    fork_server = ForkServer()
    url = f"sqlite:///{directory / 'agent.db'}"
    try:
        with agents(directory, url, SETTINGS, fork_server=fork_server) as those:
            points = Points(those, template)
            run_on_sqlite(points, is_deep=not chosen.once, most=chosen.most)
    finally:
        fork_server.close()
    counts = points.counts
    print(
        f"\nSQLite: {counts['syncs']} syncs in the golden workload; {counts['killed']} kills,"
        f" {counts['killed again']} more in the life after, {counts['EIO']} EIO,"
        f" {counts['ENOSPC']} ENOSPC: {counts['finished']} clean ends"
    )
    shutil.rmtree(directory)
    if chosen.restarts:
        tally = run_on_postgres(chosen.restarts)
        print(
            f"PostgreSQL: {tally.counts['kills']} restarts of the server, {tally.counts['tasks']}"
            f" tasks, {tally.counts['effects']} effects, {tally.counts['asked']} put to a person"
        )
        for wrong in tally.wrongs:
            print(wrong, file=sys.stderr)
        if tally.wrongs:
            return 1
    print(f"{(time.monotonic() - began) / 60:.1f} minutes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
