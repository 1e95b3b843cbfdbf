"""Callers in this process that wait until their plan for a trigger is committed."""

import asyncio
from collections import Counter
from collections.abc import Iterable

from agent.core.state_machine import FiringStatus
from agent.tasks.rules.firings.trigger_update import FireResult, TriggerUpdate


class PendingFirings:
    """The futures of plans; a plan that no caller waits for has none."""

    def __init__(self) -> None:
        self._waiting: dict[int, asyncio.Future[FireResult]] = {}
        self.counts: Counter[FiringStatus] = Counter()
        """The fates that this process gave to instants and items."""

    def await_result(self, update: TriggerUpdate) -> "asyncio.Future[FireResult]":
        """Return the future of a plan's result."""
        future: asyncio.Future[FireResult] = asyncio.get_running_loop().create_future()
        self._waiting[id(update)] = future
        return future

    def forget(self, update: TriggerUpdate) -> None:
        """Drop a caller that has given up; its plan is applied all the same."""
        self._waiting.pop(id(update), None)

    def fail(self, error: Exception) -> None:
        """Let every caller fail: the worker has ended without a commit."""
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(error)

    def resolve(self, fired: Iterable[tuple[TriggerUpdate, FireResult]]) -> None:
        """Give callers the results of their plans, after the commit."""
        for update, result in fired:
            self.counts.update(result.fates.values())
            future = self._waiting.pop(id(update), None)
            if future is not None and not future.done():
                future.set_result(result)
