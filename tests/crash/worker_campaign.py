"""The campaign of external workers: kill them and their agent a thousand times, and judge.

    python -m tests.crash.worker_campaign --sqlite 1000 --postgres 1000

Rounds of fifty kills each have a database of their own (`tests.crash.worker_kills`). The checker reads it
after every tenth kill. A directory with violations is kept.
"""

import argparse
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg

from agent.store.db.database import Database
from agent.store.schema import migrate
from tests.crash.worker_kills import round_of
from tests.support.fork_server import ForkServer
from tests.support.postgres import PostgresServer

_MIGRATING = threading.Lock()
"""Alembic runs one migration of a process at a time."""
ROUND = 50
CHECK_EVERY = 10
CROWD = 12
"""Open tasks at a time: those that wait for a lease to expire must not leave the workers idle."""
TITLES = {
    "workers": "workers killed",
    "workers in a handler": "… while their handler ran",
    "workers with a lease": "… while they held a lease",
    "agents": "agents killed",
    "agents while handlers ran": "… while handlers ran",
    "tasks": "tasks",
    "effects": "effects",
    "runs": "runs of handlers",
    "asked": "unknown effects put to a person",
}


def campaign(
    name: str, kills: int, seed: str, make_url: Callable[[Path], str]
) -> tuple[Counter[str], list[str]]:
    """Run rounds on one kind of database; return the counts and what is wrong."""
    counts: Counter[str] = Counter()
    wrongs: list[str] = []
    fork_server = ForkServer()
    try:
        while kills > 0:
            share = min(kills, ROUND)
            directory = Path(tempfile.mkdtemp(prefix="agent-leases-"))
            with round_of(
                directory, make_url(directory), f"{seed} {kills}", fork_server, crowd=CROWD
            ) as current:
                for number in range(share):
                    current.strike()
                    if number % CHECK_EVERY == 0:
                        current.check()
                result = current.close()
            counts.update(result.counts)
            wrongs += [f"{name}, {directory}: {wrong}" for wrong in result.wrongs]
            if not result.wrongs:
                shutil.rmtree(directory)
            kills -= share
            killed = counts["workers"] + counts["agents"]
            print(f"{name}: {killed} kills, {kills} to come, {len(wrongs)} violations", flush=True)
    finally:
        fork_server.close()
    return counts, wrongs


def _on_sqlite(kills: int, seed: str) -> tuple[Counter[str], list[str]]:
    def make(directory: Path) -> str:
        url = f"sqlite:///{directory / 'agent.db'}"
        with _MIGRATING:
            migrate.upgrade(Database(url))
        return url

    return campaign("SQLite", kills, seed, make)


def _on_postgres(kills: int, seed: str) -> tuple[Counter[str], list[str]]:
    server = PostgresServer(is_durable=True)
    try:
        server.start()

        def make(directory: Path) -> str:
            name = directory.name.replace("-", "_").lower()
            with psycopg.connect(server.url(), autocommit=True) as connection:
                connection.execute(f"CREATE DATABASE {name}".encode())
            with _MIGRATING:
                migrate.upgrade(Database(server.url(name)))
            return server.url(name)

        return campaign("PostgreSQL", kills, seed, make)
    finally:
        server.stop()


def main() -> int:
    """Run the campaign; the exit code is 1 if there are violations."""
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--sqlite", type=int, default=1000, metavar="KILLS")
    options.add_argument("--postgres", type=int, default=1000, metavar="KILLS")
    options.add_argument("--seed", default=str(time.time_ns()), help="when kills come")
    chosen = options.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    print(f"seed {chosen.seed}")
    started = time.monotonic()
    with ThreadPoolExecutor(2) as pool:
        running = {
            "SQLite": pool.submit(_on_sqlite, chosen.sqlite, chosen.seed),
            "PostgreSQL": pool.submit(_on_postgres, chosen.postgres, chosen.seed),
        }
        results = {name: work.result() for name, work in running.items()}
    print("| | " + " | ".join(results) + " |\n|---|" + "---:|" * len(results))
    for name, title in TITLES.items():
        row = " | ".join(f"{counts[name]:,}" for counts, _ in results.values())
        print(f"| {title} | {row} |")
    wrongs = [wrong for _, found in results.values() for wrong in found]
    print(f"{len(wrongs)} violations in {(time.monotonic() - started) / 60:.1f} minutes")
    for wrong in wrongs:
        print(wrong, file=sys.stderr)
    return 1 if wrongs else 0


if __name__ == "__main__":
    sys.exit(main())
