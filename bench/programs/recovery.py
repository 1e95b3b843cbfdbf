"""How long the startup pass takes after a worker died with very many tasks running."""

import time
from typing import Any, Final

from agent import recovery
from agent.core.clock import SECOND
from agent.store.db.database import Database
from agent.store.engine import workers
from agent.tasks.commit.batch import Batch
from agent.tasks.commit.committer import Committer
from agent.tasks.rules.claiming import ClaimCapacity
from agent.tasks.rules.creation import Submission
from bench import definitions, process, usage

_AT_ONCE: Final = 100


def main(url: str, running: int) -> dict[str, Any]:
    """Let a worker claim a step of each task and die; recover."""
    database = Database(url)
    database.set_clock()
    _claim_and_vanish(database, running)
    start, cpu = time.perf_counter(), time.process_time()
    recovered = recovery.recover(database, database.clock)
    elapsed, cpu = time.perf_counter() - start, time.process_time() - cpu
    assert recovered.steps == running, recovered
    return {
        "seconds": round(elapsed, 3),
        "cpu_ms_per_task": round(cpu * 1000 / running, 3),
        "rss_mb": usage.rss_mb(),
    }


def _claim_and_vanish(database: Database, running: int) -> None:
    graph = definitions.chain()
    committer = Committer(database, database.clock)
    committer.enroll()
    for _ in range(running // _AT_ONCE):
        batch = Batch(submissions=[Submission(graph) for _ in range(_AT_ONCE)])
        capacity = ClaimCapacity(slots=_AT_ONCE, running=0, lease_us=60 * SECOND)
        assert len(committer.commit(batch, capacity).attempts) == _AT_ONCE
    committer.session.disconnect()
    if not database.is_sqlite:
        # There others may be alive; that this one is not has been found out by its silence.
        with database.connect("writer") as connection, connection.transaction():
            workers.retire(connection, committer.worker_id, database.clock.now(), "worker.died")


if __name__ == "__main__":
    process.answer(main)
