"""One of several workers on a queue: it connects, waits for the word, and works until told to end."""

import asyncio
import sys
import time
from typing import Any

from agent import bootstrap
from agent.config.execution import EngineSettings
from agent.store.db.database import Database
from agent.tasks.worker.worker import Worker
from bench import process, usage


def main(url: str) -> dict[str, Any]:
    """Say `ready`, start at the first line on standard input, stop at its end."""
    return asyncio.run(_work(url))


async def _work(url: str) -> dict[str, Any]:
    database = Database(url)
    database.set_clock()
    worker = Worker(database, EngineSettings())
    # Connect before the start signal: a worker in service has its connection.
    worker.committer.connection.query("SELECT 1")
    bootstrap.collect_garbage_seldom()
    print("ready", flush=True)
    sys.stdin.readline()
    cpu = time.process_time()
    running = asyncio.create_task(worker.run())
    await asyncio.to_thread(sys.stdin.read)
    cpu = time.process_time() - cpu
    worker.stop()
    await running
    return {"cpu_seconds": cpu, "rss_mb": usage.rss_mb()}


if __name__ == "__main__":
    process.answer(main)
