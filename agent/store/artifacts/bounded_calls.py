"""Bounded calls to a store outside the database: one that hangs delays only its own caller.

A driver may hang for minutes, and Python cannot stop a thread. So each call runs in a daemon thread of
its own, and its caller waits for a bounded time. After a failure the store counts as unreachable:
calls fail at once, and from time to time one goes through to find out whether the store is back.
"""

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from agent.core import backoff
from agent.store.db.database import StoreError
from agent.store.db.dialect import Fault

if TYPE_CHECKING:
    import asyncio
    from concurrent.futures import Future

Result = TypeVar("Result")

FIRST_DELAY_SECONDS: Final = 1.0
LONGEST_DELAY_SECONDS: Final = 15.0
_HUNG_DELAY_SECONDS: Final = 600.0
_MOST_THREADS: Final = 32
"""Each hung call keeps its thread; with more than these, tries are rare."""


class CircuitBreaker:
    """Calls one store within a time limit; after a failure it refuses calls until the next try."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._lock = threading.Lock()
        self._threads = 0
        self._failures = 0
        self._reason: str | None = None
        self._retry_at = 0.0

    @property
    def reason(self) -> str | None:
        """Why the store counts as unreachable; None while it answers."""
        return self._reason

    @property
    def retry_in_seconds(self) -> float:
        """After how many seconds a call may reach the store again."""
        return max(0.0, self._retry_at - time.monotonic()) if self._reason is not None else 0.0

    def call(self, function: Callable[[], Result], seconds: float) -> Result:
        """Call a function and return its result within this time, or raise `StoreError`."""
        from concurrent.futures import TimeoutError as FutureTimeoutError

        future = self._begin(function)
        try:
            return future.result(seconds)
        except FutureTimeoutError:
            raise self._silent(seconds) from None

    async def call_async(self, function: Callable[[], Result], seconds: float) -> Result:
        """Do the same without blocking the event loop."""
        import asyncio

        waiting = asyncio.wrap_future(self._begin(function))
        # Not `wait_for`: it would cancel the future, and a late answer still closes the breaker.
        done, _ = await asyncio.wait([waiting], timeout=seconds)
        if not done:
            waiting.add_done_callback(_ignore)
            raise self._silent(seconds)
        return waiting.result()

    def _begin(self, function: Callable[[], Result]) -> "Future[Result]":
        from concurrent.futures import Future

        with self._lock:
            if self._reason is not None:
                now = time.monotonic()
                if now < self._retry_at:
                    raise StoreError(Fault.UNREACHABLE, self._reason)
                # Only this call tries; the others fail until it has succeeded.
                self._retry_at = now + self._delay_seconds()
            self._threads += 1
        future: Future[Result] = Future()
        future.set_running_or_notify_cancel()
        try:
            threading.Thread(
                target=self._run, args=(function, future), name=f"store {self.name}", daemon=True
            ).start()
        except RuntimeError as error:
            # The process has reached its limit of threads.
            self._leave()
            reason = f"the artifact store {self.name} cannot be called: {error}"
            self._fail(reason)
            raise StoreError(Fault.UNREACHABLE, reason) from error
        return future

    def _run(self, function: Callable[[], Any], future: "Future[Any]") -> None:
        try:
            result = function()
        except BaseException as exception:
            error = exception if isinstance(exception, StoreError) else self._broken(exception)
            if error.fault is Fault.UNREACHABLE:
                self._fail(error.message)
            self._leave()
            future.set_exception(error)
        else:
            with self._lock:
                self._reason, self._failures = None, 0
            self._leave()
            future.set_result(result)

    def _broken(self, error: BaseException) -> StoreError:
        """Return any other error as one that callers wait out, such as a lack of memory."""
        # Without its text: only the drivers' own errors are searched for secrets.
        text = f"the artifact store {self.name} cannot be called: {type(error).__name__}"
        return StoreError(Fault.UNREACHABLE, text)

    def _silent(self, seconds: float) -> StoreError:
        """Record that a call got no answer, and return the error for it."""
        message = f"the artifact store {self.name} has not answered within {seconds:g} s"
        self._fail(message)
        return StoreError(Fault.UNREACHABLE, message)

    def _fail(self, reason: str) -> None:
        with self._lock:
            self._reason = reason
            self._retry_at = time.monotonic() + self._delay_seconds()
            self._failures += 1

    def _leave(self) -> None:
        with self._lock:
            self._threads -= 1

    def _delay_seconds(self) -> float:
        if self._threads >= _MOST_THREADS:
            return _HUNG_DELAY_SECONDS
        return backoff.delay_seconds(
            self._failures + 1,
            first_seconds=FIRST_DELAY_SECONDS,
            longest_seconds=LONGEST_DELAY_SECONDS,
        )


def _ignore(future: "asyncio.Future[Any]") -> None:
    """Retrieve the exception of a late call, which has no caller any more."""
    if not future.cancelled():
        future.exception()
