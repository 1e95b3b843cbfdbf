"""The workload W on Absurd, which lives in PostgreSQL; its schema comes with its own command line.

Its worker speaks to the server through one connection; several of them may share the load. They poll
for work far more often than by default, and the waiting caller gets the end of a task from the
worker instead of asking the server again and again: both are to its advantage.
"""

import asyncio
from typing import Any, Final

import psycopg
from absurd_sdk import AsyncAbsurd
from absurdctl import BUNDLED_SCHEMA_SQL

from bench import definitions, load, noops, process
from bench.commits import transaction_ids

_QUEUE: Final = "bench"
_POLL_SECONDS: Final = 0.005


def main(url: str, in_flight: int, tasks: int, workers: int = 1) -> dict[str, Any]:
    """Measure."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(BUNDLED_SCHEMA_SQL)
    return asyncio.run(_measure(url, in_flight, tasks, workers))


class _Worker(AsyncAbsurd):
    """A worker that says when a task's end is durable."""

    def __init__(self, url: str, ends: dict[str, asyncio.Event]) -> None:
        super().__init__(url, queue_name=_QUEUE)
        self._ends = ends
        self.register_task(name="chain")(_chain)

    async def _execute_task(self, task: Any, claim_timeout: int) -> None:
        await super()._execute_task(task, claim_timeout)
        # The worker may be done before the submitter has heard the task's id.
        self._ends.setdefault(str(task["task_id"]), asyncio.Event()).set()


async def _measure(url: str, in_flight: int, tasks: int, count: int) -> dict[str, Any]:
    ends: dict[str, asyncio.Event] = {}
    submitter = AsyncAbsurd(url, queue_name=_QUEUE)
    await submitter.create_queue(_QUEUE)
    workers = [_Worker(url, ends) for _ in range(count)]
    share = -(-in_flight // count)
    running = [
        asyncio.create_task(worker.start_worker(concurrency=share, poll_interval=_POLL_SECONDS))
        for worker in workers
    ]

    async def run_one() -> None:
        spawned = await submitter.spawn("chain", {}, queue=_QUEUE)
        task_id = str(spawned["task_id"])
        await ends.setdefault(task_id, asyncio.Event()).wait()
        del ends[task_id]

    try:
        return await load.put_on(run_one, transaction_ids(url), in_flight, tasks)
    finally:
        for worker in workers:
            worker.stop_worker()
        await asyncio.gather(*running)
        for client in (submitter, *workers):
            await client.close()


async def _chain(_: Any, context: Any) -> int:
    result = 0
    for number in range(definitions.STEPS):
        result = await context.step(f"s{number}", noops.noop)
    return result


if __name__ == "__main__":
    process.answer(main)
