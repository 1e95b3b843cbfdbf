"""Eight workers of Procrastinate, each a process with its own connections, drain a queue of jobs."""

import asyncio
import threading
from typing import Any

import psycopg
from procrastinate import App, PsycopgConnector

from bench import drain, process


def main(url: str, workers: int = 0, jobs: int = 0) -> dict[str, Any]:
    """Fill a queue and measure how fast the workers drain it; without jobs, be one of them."""
    if not jobs:
        return _work(url)
    asyncio.run(_fill(url, jobs))
    with psycopg.connect(url, autocommit=True) as connection:

        def is_empty() -> bool:
            left = connection.execute(
                "SELECT 1 FROM procrastinate_jobs WHERE status IN ('todo', 'doing') LIMIT 1"
            )
            return left.fetchone() is None

        used = drain.drain("procrastinate_work", {"url": url}, workers, is_empty)
    return drain.figures(jobs, *used)


def _app(url: str) -> App:
    app = App(connector=PsycopgConnector(conninfo=url))

    @app.task(name="job")
    async def job(number: int) -> int:
        return number

    return app


async def _fill(url: str, jobs: int) -> None:
    app = _app(url)
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        await app.tasks["job"].batch_defer_async(*({"number": number} for number in range(jobs)))


def _work(url: str) -> dict[str, Any]:
    app = _app(url)
    loop = asyncio.new_event_loop()
    stopped = asyncio.Event()

    async def run() -> None:
        async with app.open_async():
            connected.set()
            await asyncio.to_thread(begun.wait)
            working = asyncio.create_task(
                app.run_worker_async(install_signal_handlers=False, listen_notify=True)
            )
            await stopped.wait()
            working.cancel()
            await asyncio.wait([working])

    connected, begun = threading.Event(), threading.Event()
    thread = threading.Thread(target=lambda: loop.run_until_complete(run()), daemon=True)
    thread.start()
    connected.wait()

    def stop() -> None:
        loop.call_soon_threadsafe(stopped.set)
        thread.join()

    return drain.serve(begun.set, stop)


if __name__ == "__main__":
    process.answer(main)
