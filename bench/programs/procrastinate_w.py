"""The workload W on Procrastinate, a queue of jobs in PostgreSQL: five jobs, each defers the next.

A job that is followed by another ends after that one was made, in a transaction of its own; a task
counts as ended when its last job's function has run, a commit earlier than elsewhere.
"""

import asyncio
from typing import Any
from uuid import uuid4

from procrastinate import App, PsycopgConnector

from bench import definitions, load, noops, process
from bench.commits import transaction_ids


def main(url: str, in_flight: int, tasks: int) -> dict[str, Any]:
    """Measure."""
    return asyncio.run(_measure(url, in_flight, tasks))


async def _measure(url: str, in_flight: int, tasks: int) -> dict[str, Any]:
    app = App(connector=PsycopgConnector(conninfo=url))
    ends: dict[str, asyncio.Event] = {}

    @app.task(name="step")
    async def step(task: str, number: int) -> None:
        await noops.noop()
        if number + 1 < definitions.STEPS:
            await step.defer_async(task=task, number=number + 1)
        else:
            ends[task].set()

    async def run_one() -> None:
        task = uuid4().hex
        ends[task] = asyncio.Event()
        await step.defer_async(task=task, number=0)
        await ends[task].wait()
        del ends[task]

    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        working = asyncio.create_task(
            app.run_worker_async(
                concurrency=in_flight, install_signal_handlers=False, listen_notify=True
            )
        )
        try:
            return await load.put_on(run_one, transaction_ids(url), in_flight, tasks)
        finally:
            working.cancel()
            await asyncio.wait([working])


if __name__ == "__main__":
    process.answer(main)
