"""A few threads for the database, a connection each; requests beyond their capacity are refused."""

import threading
from collections.abc import Callable
from typing import TypeVar

from agent.core.thread_bridge import ThreadBridge
from agent.server.problems import retry_later
from agent.store.db.database import Connection, Database, StoreError
from agent.store.db.dialect import Fault

Result = TypeVar("Result")


class DbPool:
    """Runs functions on the database, with a bound on those that run and those that wait.

    A `ThreadBridge`, not the standard library's executor: a small read costs less than the standard
    way of handing it to a thread.
    """

    def __init__(
        self,
        database: Database,
        name: str,
        threads: int,
        max_waiting: int,
        on_failure: Callable[[StoreError], None] | None = None,
    ) -> None:
        """Start the threads; `on_failure` is called in the loop with each failure of the database."""
        self._database = database
        self._on_failure = on_failure
        self._local = threading.local()
        self._max_pending = threads + max_waiting
        self._bridge = ThreadBridge(
            name, threads, on_error=self._note_error, on_thread_end=self._disconnect
        )

    async def read(self, function: Callable[[Connection], Result]) -> Result:
        """Run a function in one snapshot of the database."""
        return await self.run(lambda: self._read(function))

    async def run(self, function: Callable[[], Result]) -> Result:
        """Run a function in a thread; refuse it at once when too many are waiting.

        A cancelled caller stops waiting; the function runs to its end.
        """
        if self._bridge.pending >= self._max_pending:
            raise retry_later(503, "overloaded", "too many requests wait for the database")
        return await self._bridge.run(function)

    def close(self) -> None:
        """Wait until the pending functions have ended, and close the connections."""
        self._bridge.close()
        self._bridge.join()

    def _note_error(self, error: BaseException) -> None:
        if self._on_failure is not None and isinstance(error, StoreError):
            self._on_failure(error)

    def _read(self, function: Callable[[Connection], Result]) -> Result:
        connection: Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = self._database.connect("reader")
        try:
            with connection.snapshot():
                return function(connection)
        except StoreError as error:
            if error.fault in (Fault.LOST, Fault.CORRUPT):
                self._disconnect()
            raise

    def _disconnect(self) -> None:
        connection: Connection | None = getattr(self._local, "connection", None)
        if connection is not None:
            self._local.connection = None
            connection.close()
