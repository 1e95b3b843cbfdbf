"""Polls of watchers that callers ask for: each in a thread of its own, a few at once.

A poll lasts up to its timeout. It must not occupy a thread that commands need, nor delay a stop: the
threads are abandoned at the end of the process.
"""

from typing import Any, Final

from agent.core.thread_bridge import UnboundedThreads
from agent.server.problems import retry_later
from agent.steps.attempt.services import Limits
from agent.store.db.database import Database

MOST: Final = 4


class WatcherChecks:
    """Polls watchers and records nothing."""

    def __init__(self, database: Database, limits: Limits) -> None:
        self._database = database
        self.limits = limits
        self._threads = UnboundedThreads("api-check")
        self._running = 0

    async def check(self, trigger_id: str) -> dict[str, Any]:
        """Poll a watcher and return the runs it would start; refuse when too many are polled."""
        # Imported here: watchers load large libraries.
        from agent.triggers.check import check_watcher

        if self._running >= MOST:
            raise retry_later(503, "overloaded", "too many watchers are being checked")
        database, limits = self._database, self.limits
        self._running += 1
        checked = self._threads.start(
            lambda: check_watcher(database, database.clock, limits, trigger_id)
        )
        # By the poll, not by its caller: who disconnects does not stop it.
        checked.add_done_callback(lambda _: self._end())
        return await checked

    def _end(self) -> None:
        self._running -= 1
