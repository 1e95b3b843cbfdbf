"""The time of one attempt: what it runs in is cancelled when the time, or the engine's patience, ends.

As `asyncio.timeout`, but for one use: it swallows the cancellation that it caused instead of raising,
and costs an attempt that is never interrupted next to nothing.
"""

import asyncio
from types import TracebackType
from typing import Self


class Scope:
    """A block that can be ended from outside, or by the clock."""

    __slots__ = ("_before", "_handle", "_is_over", "_loop", "_seconds", "_task")

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self._is_over = False
        self._handle: asyncio.Handle | None = None

    def __enter__(self) -> Self:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._loop = task.get_loop()
        self._before = task.cancelling()
        if self._seconds is not None:
            self._handle = self._loop.call_later(self._seconds, self._end)
        return self

    def is_over(self) -> bool:
        """Whether the block was ended before it came to its end."""
        return self._is_over

    def end_soon(self) -> None:
        """End the block, unless it comes to its end before anything else happens."""
        if not self._is_over:
            if self._handle is not None:
                self._handle.cancel()
            self._handle = self._loop.call_soon(self._end)

    def _end(self) -> None:
        self._is_over = True
        self._handle = None
        self._task.cancel()

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        if not self._is_over:
            return False
        # Somebody else may have cancelled the task as well: that one is not ours to swallow.
        return self._task.uncancel() <= self._before and error_type is asyncio.CancelledError
