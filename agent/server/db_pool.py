"""A few threads for the database, a connection each; more than they can do is refused."""

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

from agent.server.problems import retry_later
from agent.store.db.database import Connection, Database, StoreError
from agent.store.db.dialect import Fault

Result = TypeVar("Result")

_Job = tuple["asyncio.Future[Any]", Callable[[], Any]]


class DbPool:
    """Runs functions on the database, at most so many at once and so many waiting.

    Plainer than the standard library's executor, and cheaper: a small read costs less than the
    standard way of handing it to a thread.
    """

    def __init__(
        self,
        database: Database,
        name: str,
        threads: int,
        most_waiting: int,
        on_failure: Callable[[StoreError], None] | None = None,
    ) -> None:
        """Take how many, and what hears of each failure of the database, in the loop."""
        self._database = database
        self._on_failure = on_failure
        self._loop = asyncio.get_running_loop()
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._own = threading.local()
        self._most = threads + most_waiting
        self._inside = 0
        self._threads = [
            threading.Thread(target=self._work, name=f"{name}-{number}", daemon=True)
            for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    async def read(self, function: Callable[[Connection], Result]) -> Result:
        """Run a function on one consistent state of the database."""
        return await self.run(lambda: self._read(function))

    async def run(self, function: Callable[[], Result]) -> Result:
        """Run a function in a thread; refuse it at once when too many wait already.

        A caller that is cancelled stops waiting; the function still runs to its end.
        """
        if self._inside >= self._most:
            raise retry_later(503, "overloaded", "too many requests wait for the database")
        self._inside += 1
        future: asyncio.Future[Result] = self._loop.create_future()
        self._jobs.put((future, function))
        return await future

    def close(self) -> None:
        """Let what was given end, and the threads and their connections with it."""
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            future, function = job
            result, error = None, None
            try:
                result = function()
            except BaseException as raised:
                error = raised
            try:
                self._loop.call_soon_threadsafe(self._answer, future, result, error)
            except RuntimeError:
                # The loop was closed while the thread worked: nobody waits for the answer.
                break
        self._disconnect()

    def _answer(
        self, future: "asyncio.Future[Any]", result: Any, error: BaseException | None
    ) -> None:
        self._inside -= 1
        if self._on_failure is not None and isinstance(error, StoreError):
            self._on_failure(error)
        if future.done():
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)

    def _read(self, function: Callable[[Connection], Result]) -> Result:
        connection: Connection | None = getattr(self._own, "connection", None)
        if connection is None:
            connection = self._own.connection = self._database.connect("reader")
        try:
            with connection.snapshot():
                return function(connection)
        except StoreError as error:
            if error.fault in (Fault.LOST, Fault.CORRUPT):
                self._disconnect()
            raise

    def _disconnect(self) -> None:
        connection: Connection | None = getattr(self._own, "connection", None)
        if connection is not None:
            self._own.connection = None
            connection.close()
