"""Bridges from an event loop to threads, and to the event loop of another thread.

- `ThreadBridge` has a fixed number of threads and runs functions first in, first out. The worker's
  database thread and the server's database pool are bridges.
- `UnboundedThreads` gives every function a thread at once. Functions of steps run there.
- `LoopBridge` runs coroutines in the event loop of another thread: the server's in the worker's.

The threads of the first two are daemons: a function that never returns does not keep the process from ending, as
the standard executor's threads would. A cancelled caller stops waiting; the function runs to its end.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from queue import SimpleQueue
from typing import Any, Final, TypeVar

Result = TypeVar("Result")

_Job = tuple[asyncio.AbstractEventLoop, "asyncio.Future[Any]", Callable[[], Any]]

IDLE_SECONDS: Final = 10.0
"""How long an idle thread of `UnboundedThreads` waits for another function."""


class ThreadBridge:
    """A fixed number of threads that run functions in the order in which they came."""

    def __init__(
        self,
        name: str,
        threads: int = 1,
        *,
        on_error: Callable[[BaseException], None] | None = None,
        on_thread_end: Callable[[], None] | None = None,
    ) -> None:
        """Start the threads.

        `on_error` is called in the loop with every exception of a function, also when the caller was
        cancelled. `on_thread_end` is called in each thread before it ends.
        """
        self.pending = 0
        """Functions that have not ended yet; only the loop reads and writes this."""
        self._on_error = on_error
        self._on_thread_end = on_thread_end
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        names = [name] if threads == 1 else [f"{name}-{number}" for number in range(threads)]
        self._threads = [
            threading.Thread(target=self._work, name=name, daemon=True) for name in names
        ]
        for thread in self._threads:
            thread.start()

    async def run(self, function: Callable[[], Result]) -> Result:
        """Run a function in a thread and return its result."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Result] = loop.create_future()
        self.pending += 1
        self._jobs.put((loop, future, function))
        return await future

    def close(self) -> None:
        """Let each thread end after the functions that came before."""
        for _ in self._threads:
            self._jobs.put(None)

    def join(self) -> None:
        """Wait until the threads have ended; call `close` first."""
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            loop, future, function = job
            result, error = _call(function)
            if not _post(loop, self._finish, future, result, error):
                break
            # An idle thread must not keep what its last function used alive.
            del job, loop, future, function, result, error
        if self._on_thread_end is not None:
            self._on_thread_end()

    def _finish(
        self, future: "asyncio.Future[Any]", result: Any, error: BaseException | None
    ) -> None:
        self.pending -= 1
        if error is not None and self._on_error is not None:
            self._on_error(error)
        _resolve(future, result, error)


class UnboundedThreads:
    """A thread for every function at once; idle threads are reused for a while.

    The caller bounds how many functions run: a worker by its slots.
    """

    def __init__(self, name: str = "step") -> None:
        self._name = name
        self._condition = threading.Condition()
        self._jobs: deque[_Job] = deque()
        self._idle = 0

    def start(self, function: Callable[[], Result]) -> "asyncio.Future[Result]":
        """Start a function in a thread and return the future of its result.

        Raises `RuntimeError`, and does not run the function, when no thread can be started.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Result] = loop.create_future()
        job = (loop, future, function)
        with self._condition:
            self._jobs.append(job)
            if self._idle >= len(self._jobs):
                self._condition.notify()
                return future
        try:
            threading.Thread(target=self._work, name=self._name, daemon=True).start()
        except RuntimeError:
            with self._condition:
                if job in self._jobs:
                    self._jobs.remove(job)
                    raise
            # Another thread has become idle meanwhile and has taken it.
        return future

    async def aclose(self) -> None:
        """Release nothing, as a shared resource: idle threads end by themselves."""

    def _work(self) -> None:
        while True:
            with self._condition:
                self._idle += 1
                has_job = self._condition.wait_for(lambda: bool(self._jobs), IDLE_SECONDS)
                self._idle -= 1
                if not has_job:
                    return
                loop, future, function = self._jobs.popleft()
            result, error = _call(function)
            _post(loop, _resolve, future, result, error)
            # An idle thread must not keep what its last function used alive.
            del loop, future, function, result, error


class LoopEndedError(RuntimeError):
    """The event loop that runs a coroutine has ended."""

    def __init__(self) -> None:
        super().__init__("the event loop that runs this has ended")


class LoopBridge:
    """Runs coroutines in another thread's event loop, for coroutines of the loop that made it.

    To wake a loop from another thread takes a system call. Everything that crosses before the other
    loop runs shares one.
    """

    def __init__(self, there: asyncio.AbstractEventLoop) -> None:
        self._there = there
        self._here = asyncio.get_running_loop()
        self._calls: deque[_Crossing] = deque()
        self._ended: deque[_Crossing] = deque()
        self._is_call_posted = False
        self._is_end_posted = False

    def post(self, callback: Callable[[], None]) -> None:
        """Call a function in the other loop, unless that has ended."""
        _post(self._there, callback)

    async def run(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine in the other loop and return its result; cancel it if this is cancelled.

        Raises `LoopEndedError` when the other loop is closed, and does not run the coroutine then, or
        when it ends meanwhile.
        """
        crossing = _Crossing(coroutine, self._here.create_future())
        self._calls.append(crossing)
        if not self._is_call_posted:
            # The other thread resets this before it takes the calls, so none is left behind.
            self._is_call_posted = True
            if not _post(self._there, self._start):
                self._is_call_posted = False
                self._calls.remove(crossing)
                coroutine.close()
                raise LoopEndedError
        try:
            result: Result = await crossing.future
        except asyncio.CancelledError:
            _post(self._there, crossing.cancel)
            raise
        return result

    def _start(self) -> None:
        """In the other loop: start what has crossed."""
        self._is_call_posted = False
        while self._calls:
            crossing = self._calls.popleft()
            crossing.task = self._there.create_task(crossing.coroutine)
            crossing.task.add_done_callback(partial(self._end, crossing))

    def _end(self, crossing: "_Crossing", _: "asyncio.Task[Any]") -> None:
        """In the other loop: send a result back."""
        self._ended.append(crossing)
        if not self._is_end_posted:
            self._is_end_posted = True
            _post(self._here, self._deliver)

    def _deliver(self) -> None:
        """In the caller's loop: pass results to the callers."""
        self._is_end_posted = False
        while self._ended:
            crossing = self._ended.popleft()
            task = crossing.task
            assert task is not None
            if task.cancelled():
                # By its loop, which ends: a caller that is cancelled waits for nothing.
                _resolve(crossing.future, None, LoopEndedError())
            elif (error := task.exception()) is not None:
                _resolve(crossing.future, None, error)
            else:
                _resolve(crossing.future, task.result(), None)


class _Crossing:
    """A coroutine on its way through a `LoopBridge`, and its result on the way back."""

    __slots__ = ("coroutine", "future", "task")

    def __init__(self, coroutine: Coroutine[Any, Any, Any], future: "asyncio.Future[Any]") -> None:
        self.coroutine = coroutine
        self.future = future
        self.task: asyncio.Task[Any] | None = None

    def cancel(self) -> None:
        """In the other loop, behind the start: cancel the coroutine."""
        if self.task is not None:
            self.task.cancel()


def _call(function: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    try:
        return function(), None
    except BaseException as error:  # the awaiting coroutine gets it, whatever it is
        return None, error


def _post(loop: asyncio.AbstractEventLoop, callback: Callable[..., None], *args: Any) -> bool:
    """Call back in the loop; return False if it has been closed, when nothing awaits a result."""
    try:
        loop.call_soon_threadsafe(callback, *args)
    except RuntimeError:
        return False
    return True


def _resolve(future: "asyncio.Future[Any]", result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if isinstance(error, StopIteration):
        # A future refuses it, because it would end the coroutine that awaits.
        error = RuntimeError(f"the function raised {error!r}")
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)
