"""Cancellation of an attempt, by its time limit or by the engine.

`CancelScope` is like `asyncio.timeout`, with two differences: it swallows the cancellation that it
caused, and it costs an attempt that is never interrupted next to nothing.
"""

import asyncio
from types import TracebackType
from typing import Final, Self, TypeVar

T = TypeVar("T")

_LONG_SECONDS: Final = 60.0
"""Scopes of this length and more share one timer of their loop. Most end long before their time, and
a timer of their own would cost a tenth of a short attempt."""
_ROUNDING_SECONDS: Final = 0.001
"""A timer may fire a little before its time by the loop's clock."""


class CancelScope:
    """A block that a time limit or another task can end."""

    __slots__ = ("_before", "_handle", "_is_over", "_loop", "_seconds", "_shared", "_task")

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self._is_over = False
        self._handle: asyncio.Handle | None = None
        self._shared: _SharedTimer | None = None

    def __enter__(self) -> Self:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._loop = task.get_loop()
        self._before = task.cancelling()
        if self._seconds is not None:
            if self._seconds < _LONG_SECONDS:
                self._handle = self._loop.call_later(self._seconds, self.end)
            else:
                self._shared = _timer_of(self._loop)
                self._shared.add(self, self._loop.time() + self._seconds)
        return self

    def is_over(self) -> bool:
        """Whether the block was ended early."""
        return self._is_over

    def end_soon(self) -> None:
        """End the block, unless it completes before the loop runs anything else."""
        if not self._is_over:
            if self._handle is not None:
                self._handle.cancel()
            self._leave_shared()
            self._handle = self._loop.call_soon(self.end)

    def end(self) -> None:
        """End the block now."""
        self._is_over = True
        self._handle = None
        self._leave_shared()
        self._task.cancel()

    def _leave_shared(self) -> None:
        if self._shared is not None:
            self._shared.remove(self)
            self._shared = None

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        self._leave_shared()
        if not self._is_over:
            return False
        # Another cancellation of the task, by its owner, must not be swallowed.
        return self._task.uncancel() <= self._before and error_type is asyncio.CancelledError


class _SharedTimer:
    """The one timer of a loop for all its long scopes, set to the earliest end."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._ends: dict[CancelScope, float] = {}
        self._handle: asyncio.TimerHandle | None = None

    def add(self, scope: CancelScope, end: float) -> None:
        """End a scope at this time of the loop's clock, unless it is removed before."""
        self._ends[scope] = end
        if self._handle is None or end < self._handle.when():
            self._set(end)

    def remove(self, scope: CancelScope) -> None:
        """Forget a scope. The timer stays: setting it again would cost as much as a timer per scope."""
        self._ends.pop(scope, None)

    def _set(self, end: float) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._handle = self.loop.call_at(end, self._fire)

    def _fire(self) -> None:
        self._handle = None
        now = self.loop.time() + _ROUNDING_SECONDS
        for scope in [scope for scope, end in self._ends.items() if end <= now]:
            scope.end()
        if self._ends:
            self._set(min(self._ends.values()))


_last: "_SharedTimer | None" = None


def _timer_of(loop: asyncio.AbstractEventLoop) -> _SharedTimer:
    """Return the timer of a loop; a process runs its attempts in one loop at a time."""
    global _last  # noqa: PLW0603 - a cache of one
    if _last is None or _last.loop is not loop:
        _last = _SharedTimer(loop)
    return _last


async def complete(work: "asyncio.Future[T]") -> tuple[T, asyncio.CancelledError | None]:
    """Await work whose result must not be lost, however often the task is cancelled meanwhile.

    Return the result and the last cancellation, which the caller may raise again.
    """
    cancellation: asyncio.CancelledError | None = None
    while not work.done():
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError as error:
            cancellation = error
    return work.result(), cancellation
