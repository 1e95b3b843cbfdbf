"""Submitters in this process that wait until their task is durable."""

import asyncio
from collections.abc import Mapping

from agent.tasks.errors import RefusedError


class Submitters:
    """The futures of submissions, by the ids that they proposed."""

    def __init__(self) -> None:
        self._waiting: dict[str, asyncio.Future[str]] = {}

    def await_task(self, proposed_id: str) -> "asyncio.Future[str]":
        """Return the future of a task's id."""
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._waiting[proposed_id] = future
        return future

    def forget(self, proposed_id: str) -> None:
        """Drop a submitter that has given up."""
        self._waiting.pop(proposed_id, None)

    def fail(self, error: Exception) -> None:
        """Let every submitter fail: the worker has ended without a commit."""
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(error)

    def resolve(self, created: Mapping[str, str], refused: Mapping[str, str]) -> None:
        """Give submitters the ids or the refusals of their submissions, after the commit."""
        for proposed_id, task_id in created.items():
            future = self._waiting.pop(proposed_id, None)
            if future is not None and not future.done():
                future.set_result(task_id)
        for proposed_id, reason in refused.items():
            future = self._waiting.pop(proposed_id, None)
            if future is not None and not future.done():
                future.set_exception(RefusedError(reason))
