"""An event loop without time and without threads: a seed decides the order.

Time stands still while anything can run, and then jumps to the next timer. Of all callbacks that are
ready one is chosen at random. Blocking work (`run_in_executor`, the worker's link) runs in this very
thread, as a greenlet that gives way wherever another process could come between: before it begins
a transaction, after it committed one, and while it sleeps.

Callbacks belong to simulated processes, by their contexts. Those of a dead process never run; those
of a stopped one wait until it goes on.
"""

import asyncio
import contextlib
import contextvars
import functools
import heapq
import random
from collections.abc import Callable
from typing import Any, TypeVar

from greenlet import getcurrent, greenlet

T = TypeVar("T")

MOST_CALLBACKS = 300_000
"""A run that needs more goes round in circles."""


class StalledError(Exception):
    """Nothing can happen any more, or the same happens for ever."""


class Process:
    """One process of the simulated machine: dead, stopped, or alive."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_dead = False
        self.stopped_until = 0.0
        self.callbacks = 0
        """How many have run while it had work in hand; faults strike by their number."""
        self.is_busy: Callable[[], bool] = lambda: False
        self.on_callback: Callable[[int], None] = lambda _: None
        """Told before each callback of this process, by its number: a fault may strike there."""


_process: contextvars.ContextVar[Process] = contextvars.ContextVar("process")


def current_process() -> Process:
    """Return the process that the running code belongs to."""
    return _process.get()


class SimulatedLoop(asyncio.BaseEventLoop):
    """Runs everything in the order that its source of chance decides."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self.chance = chance
        self._now = 0.0
        self._hub = getcurrent()
        self._kept: list[Any] = []
        self._jobs: list[greenlet] = []
        self.callbacks = 0
        self.longest_pause = 0.002
        """How long a piece of blocking work may wait between two of its transactions."""

    def time(self) -> float:
        """Return the virtual time in seconds."""
        return self._now

    def start_in(self, process: Process, coroutine: Any) -> "asyncio.Task[Any]":
        """Start a coroutine as part of a process."""
        context = contextvars.copy_context()
        context.run(_process.set, process)
        task = self.create_task(coroutine, context=context)
        # What a killed process leaves unfinished is expected, and ends with the run.
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        self._kept.append(task)
        return task

    def run_blocking(self, function: Callable[[], T]) -> "asyncio.Future[T]":
        """Run a function as a thread would, and return the future of its result."""
        future: asyncio.Future[T] = self.create_future()

        def work() -> None:
            try:
                result = function()
            except DiedError:
                return
            except BaseException as error:
                if not future.done():
                    future.set_exception(error)
            else:
                if not future.done():
                    future.set_result(result)

        job = greenlet(work)
        job.gr_context = contextvars.copy_context()
        self._jobs.append(job)
        self.call_later(self.chance.uniform(0, self.longest_pause), self._switch, job)
        return future

    def pause(self, seconds: float | None = None) -> None:
        """Let others run before the calling blocking work goes on."""
        job = getcurrent()
        if job is self._hub:
            return
        delay = self.chance.uniform(0, self.longest_pause) if seconds is None else seconds
        self.call_later(delay, self._switch, job)
        self._hub.switch()

    def _switch(self, job: greenlet) -> None:
        job.switch()

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Any, *args: Any
    ) -> Any:
        """Run what is meant for a thread as a greenlet."""
        return self.run_blocking(functools.partial(func, *args))

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Any, *args: Any, context: Any = None
    ) -> Any:
        """There is one thread."""
        return self.call_soon(callback, *args, context=context)

    def abandon(self) -> None:
        """Close the loop with everything that is unfinished."""
        tasks = sorted(asyncio.all_tasks(self), key=lambda task: task.get_name())
        for task in tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            with contextlib.suppress(BaseException):
                task.get_coro().close()
        for job in self._jobs:
            with contextlib.suppress(BaseException):
                job.throw()
        self._ready.clear()  # type: ignore[attr-defined]
        self._scheduled.clear()  # type: ignore[attr-defined]
        self.close()
        self._kept.clear()

    def _process_events(self, event_list: Any) -> None: ...

    def _write_to_self(self) -> None: ...

    def _run_once(self) -> None:
        """Run one callback."""
        self.callbacks += 1
        if self.callbacks > MOST_CALLBACKS:
            raise StalledError(f"{MOST_CALLBACKS} callbacks, and no end")
        scheduled: list[Any] = self._scheduled  # type: ignore[attr-defined]
        ready: Any = self._ready  # type: ignore[attr-defined]
        while scheduled and scheduled[0]._cancelled:
            heapq.heappop(scheduled)._scheduled = False
        if not ready:
            if not scheduled:
                raise StalledError("nothing is left that could ever happen")
            self._now = max(self._now, scheduled[0]._when)
        while scheduled and scheduled[0]._when <= self._now:
            handle = heapq.heappop(scheduled)
            handle._scheduled = False
            if not handle._cancelled:
                ready.append(handle)
        if not ready:
            return
        index = self.chance.randrange(len(ready))
        handle = ready[index]
        del ready[index]
        if not handle._cancelled and self._may_run(handle):
            handle._run()

    def _may_run(self, handle: Any) -> bool:
        process = handle._context.get(_process)
        if process is None:
            return True
        is_running = not process.is_dead and process.stopped_until <= self._now
        if is_running and process.is_busy():
            process.callbacks += 1
            process.on_callback(process.callbacks)
        if process.is_dead:
            self._kept.append(handle)
            return False
        if process.stopped_until > self._now:
            # Not `call_at`: who cancels the handle must still find it.
            self.call_at(process.stopped_until, self._ready.append, handle, context=_NOBODY)  # type: ignore[attr-defined]
            return False
        return True


class DiedError(BaseException):
    """The process has ended: nothing in it runs any more."""


_NOBODY = contextvars.Context()
