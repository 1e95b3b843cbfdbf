"""How fast several worker processes drain one queue of tasks, and what each task costs them."""

import json
import subprocess
import sys
import time
from typing import IO, Any, Final

from agent.core.clock import SECOND
from agent.store.db.database import Database
from agent.tasks.commit.batch import Batch
from agent.tasks.commit.committer import Committer
from agent.tasks.rules.claiming import ClaimCapacity
from agent.tasks.rules.creation import Submission
from bench import definitions, process, usage
from bench.definitions import STEPS

_AT_ONCE: Final = 100
_POLL_SECONDS: Final = 0.01


def main(url: str, workers: int, tasks: int) -> dict[str, Any]:
    """Fill a queue, start the workers at one moment, and wait until it is empty."""
    database = Database(url)
    database.set_clock()
    _fill(database, tasks)
    given = [sys.executable, "-m", "bench.programs.one_worker", json.dumps({"url": url})]
    running = [
        subprocess.Popen(given, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(workers)
    ]
    try:
        for worker in running:
            assert _pipe(worker.stdout).readline() == "ready\n"
        with database.connect("reader") as connection:
            server = [row[0] for row in connection.query(_BACKENDS)]
            served = sum(map(usage.cpu_seconds, server))
            start = time.perf_counter()
            for worker in running:
                _pipe(worker.stdin).write("go\n")
                _pipe(worker.stdin).flush()
            while connection.query("SELECT 1 FROM tasks WHERE status = 'running' LIMIT 1"):
                time.sleep(_POLL_SECONDS)
            elapsed = time.perf_counter() - start
            served = sum(map(usage.cpu_seconds, server)) - served
        told = [json.loads(worker.communicate()[0]) for worker in running]
    finally:
        for worker in running:
            worker.kill()
    return {
        "steps_per_s": round(tasks * STEPS / elapsed, 1),
        "cpu_ms_per_task": round(sum(each["cpu_seconds"] for each in told) * 1000 / tasks, 3),
        "server_cpu_ms_per_task": round(served * 1000 / tasks, 3),
        "rss_mb": max(each["rss_mb"] for each in told),
    }


_BACKENDS: Final = (
    "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
    " AND application_name = 'agent worker'"
)


def _fill(database: Database, tasks: int) -> None:
    graph = definitions.chain()
    committer = Committer(database, database.clock)
    committer.enroll()
    nothing = ClaimCapacity(slots=0, running=0, lease_us=60 * SECOND)
    for _ in range(tasks // _AT_ONCE):
        committer.commit(Batch(submissions=[Submission(graph) for _ in range(_AT_ONCE)]), nothing)
    committer.session.retire()
    committer.session.disconnect()


def _pipe(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream


if __name__ == "__main__":
    process.answer(main)
