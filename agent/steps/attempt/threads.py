"""Threads for step functions that are not coroutines.

They are daemons: a function that never returns must not keep the process from ending, which the
standard executor's threads would. There is no bound here: the worker's slots are the bound.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

IDLE_SECONDS = 10.0


class Threads:
    """Runs functions in threads, keeping idle ones for a while."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._jobs: deque[tuple[asyncio.AbstractEventLoop, asyncio.Future[Any], Any]] = deque()
        self._idle = 0

    def start(self, function: Callable[[], Any]) -> asyncio.Future[Any]:
        """Begin a function in a thread of its own and return the future of its result."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        with self._condition:
            self._jobs.append((loop, future, function))
            if self._idle >= len(self._jobs):
                self._condition.notify()
                return future
        threading.Thread(target=self._work, name="step", daemon=True).start()
        return future

    def _work(self) -> None:
        while True:
            with self._condition:
                self._idle += 1
                has_job = self._condition.wait_for(lambda: bool(self._jobs), IDLE_SECONDS)
                self._idle -= 1
                if not has_job:
                    return
                loop, future, function = self._jobs.popleft()
            result, error = None, None
            try:
                result = function()
            except BaseException as problem:  # whatever it was, the attempt must hear of it
                error = problem
            _tell(loop, future, result, error)
            del loop, future, function, result, error


def _tell(
    loop: asyncio.AbstractEventLoop,
    future: asyncio.Future[Any],
    result: Any,
    error: BaseException | None,
) -> None:
    """Hand a result to the loop; one that has closed meanwhile has nobody left to tell."""
    try:
        loop.call_soon_threadsafe(_settle, future, result, error)
    except RuntimeError:
        return


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if isinstance(error, StopIteration):
        # A future refuses it, because it would end the coroutine that awaits.
        error = RuntimeError(f"the function raised {error!r}")
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)
