"""A worker of ours to measure, in this process, on a migrated database."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from agent import bootstrap
from agent.config.execution import EngineSettings
from agent.tasks.rules.creation import Submission
from agent.tasks.worker.worker import Worker
from bench.commits import Count, CountedDatabase, transaction_ids


class Session:
    """A running worker, and who waits for which task."""

    def __init__(self, url: str, settings: EngineSettings) -> None:
        self.database = CountedDatabase(url)
        self.database.set_clock()
        self.worker = Worker(self.database, settings)
        self.worker.commit_listeners.append(self._listen)
        self._expected: dict[tuple[str, str], asyncio.Future[tuple[Any, ...]]] = {}
        self.commits: Count = lambda: self.database.commits
        if not self.database.is_sqlite:
            self.commits = transaction_ids(url)

    async def run_task(self, submission: Submission) -> None:
        """Submit a task and wait for its end, which must be a success."""
        end = self.expect(submission.task_id, "task.succeeded")
        self._expected[(submission.task_id, "task.failed")] = end
        await self.worker.submit(submission)
        event = await end
        if event[2] != "task.succeeded":
            raise RuntimeError(f"a task that cannot fail ended with {event[2]}")

    def expect(self, task_id: str, event: str) -> "asyncio.Future[tuple[Any, ...]]":
        """Return what will hold a task's event of this type, once it is durable."""
        future: asyncio.Future[tuple[Any, ...]] = asyncio.get_running_loop().create_future()
        self._expected[(task_id, event)] = future
        return future

    @staticmethod
    def data(event: tuple[Any, ...]) -> dict[str, Any]:
        """Return what an event carries."""
        found: dict[str, Any] = json.loads(event[6])
        return found

    def _listen(self, events: list[tuple[Any, ...]]) -> None:
        for event in events:
            future = self._expected.pop((event[0], event[2]), None)
            if future is not None and not future.done():
                future.set_result(event)


@asynccontextmanager
async def session(url: str, settings: EngineSettings | None = None) -> AsyncIterator[Session]:
    """Run a worker for as long as the block lasts."""
    opened = Session(url, settings or EngineSettings())
    # As the daemon does.
    bootstrap.collect_garbage_seldom()
    running = asyncio.create_task(opened.worker.run())
    try:
        yield opened
    finally:
        opened.worker.stop()
        await running
