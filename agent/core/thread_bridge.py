"""The database's own thread: blocking work runs there, in order, and the loop awaits its result."""

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

Result = TypeVar("Result")

_Job = tuple[asyncio.AbstractEventLoop, "asyncio.Future[Any]", Callable[[], Any]]


class ThreadBridge:
    """One daemon thread that runs what it is given, first in, first out."""

    def __init__(self, name: str) -> None:
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    async def run(self, function: Callable[[], Result]) -> Result:
        """Run a function in the thread and return what it returned.

        A caller that is cancelled stops waiting; the function still runs to its end.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Result] = loop.create_future()
        self._jobs.put((loop, future, function))
        return await future

    def close(self) -> None:
        """Let the thread end after what it was given before."""
        self._jobs.put(None)

    def join(self, timeout_seconds: float) -> bool:
        """Wait for the thread to end; say whether it did."""
        self._thread.join(timeout_seconds)
        return not self._thread.is_alive()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            loop, future, function = job
            try:
                result, error = function(), None
            except BaseException as raised:
                result, error = None, raised
            try:
                loop.call_soon_threadsafe(_answer, future, result, error)
            except RuntimeError:
                # The loop was closed while the thread worked: nobody waits for the answer.
                return


def _answer(future: "asyncio.Future[Any]", result: Any, error: BaseException | None) -> None:
    if future.cancelled():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
