"""Eight external workers, each a process, drain a queue of steps through the HTTP API of a daemon."""

import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Final

from agent.core.clock import SECOND
from agent.queue import Work, Worker, handler
from agent.store.db.database import Database
from agent.tasks.commit.batch import Batch
from agent.tasks.commit.committer import Committer
from agent.tasks.rules.claiming import ClaimCapacity
from agent.tasks.rules.creation import Submission
from agent.workflows.graph import Graph, Step
from bench import drain, process, usage
from bench.daemon import running_daemon

_QUEUE: Final = "bench"
_AT_ONCE: Final = 100
_OPEN: Final = "SELECT 1 FROM work WHERE status IN ('queued', 'leased', 'running') LIMIT 1"
_QUEUED: Final = "SELECT count(*) FROM work WHERE status = 'queued'"


def main(url: str = "", workers: int = 0, jobs: int = 0, server: str = "", token: str = "") -> Any:
    """Fill a queue and measure how fast the workers drain it; without jobs, be one of them."""
    if not jobs:
        return _work(server, token)
    database = Database(url)
    database.set_clock()
    _fill(database, jobs)
    with (
        tempfile.TemporaryDirectory(prefix="agent-work-") as directory,
        running_daemon(Path(directory), {"AGENT_DATABASE__URL": url}) as (process_id, port, secret),
        database.connect("reader") as connection,
    ):
        give_up = time.monotonic() + 120
        while connection.query(_QUEUED) != [(jobs,)]:
            if time.monotonic() > give_up:
                raise TimeoutError(f"not all is offered: {connection.query(_QUEUED)}")
            time.sleep(0.05)
        address = f"http://127.0.0.1:{port}"
        served = usage.cpu_seconds(process_id)
        used = drain.drain(
            "agent_work",
            {"server": address, "token": secret},
            workers,
            lambda: not connection.query(_OPEN),
        )
        served = usage.cpu_seconds(process_id) - served
    figures = drain.figures(jobs, *used)
    return {**figures, "server_cpu_ms_per_task": round(served * 1000 / jobs, 3)}


def _work(server: str, token: str) -> dict[str, Any]:
    @handler(_QUEUE)
    def job(work: Work) -> Any:
        return work.input["number"]

    worker = Worker(job, server=server, token=token)
    thread = threading.Thread(target=worker.run, daemon=True)

    def stop() -> None:
        worker.stop()
        thread.join()

    return drain.serve(thread.start, stop)


def _fill(database: Database, jobs: int) -> None:
    config = {"queue": _QUEUE, "with": {"number": 1}}
    graph = Graph(name="job", steps=[Step(name="job", kind="worker", config=config)])
    committer = Committer(database, database.clock)
    committer.enroll()
    nothing = ClaimCapacity(slots=0, running=0, lease_us=60 * SECOND)
    for _ in range(jobs // _AT_ONCE):
        committer.commit(Batch(submissions=[Submission(graph) for _ in range(_AT_ONCE)]), nothing)
    committer.session.retire()
    committer.session.disconnect()


if __name__ == "__main__":
    process.answer(main)
