"""The event loop of a process that runs steps: no exit or cancellation by a step's code ends it.

asyncio raises `SystemExit` and `KeyboardInterrupt` out of the loop whichever task or callback raised
them. The runner contains those of a step's own call. What remains are the tasks and the callbacks
that a step's code starts itself: their exception reaches the code that awaits them, and the loop
goes on with everything else.

A step's coroutine function runs on the same loop as the engine, so `asyncio.all_tasks()` shows it the
engine's tasks. Those refuse to be cancelled by a step's code.
"""

import asyncio
import signal
import threading
import weakref
from collections.abc import Coroutine
from contextvars import ContextVar, Token
from typing import Any, Final, TypeVar

T = TypeVar("T")

_Root = weakref.ref["asyncio.Task[Any]"]

_root: Final[ContextVar[_Root | None]] = ContextVar("root_task", default=None)
"""The attempt's task, wherever a step's code runs: also in the tasks and callbacks that it starts."""


class StepCode:
    """Marks the code in its block, and the tasks it starts, as a step's code.

    A class, not a generator: every attempt enters it.
    """

    __slots__ = ("_token",)

    def __enter__(self) -> None:
        self._token: Token[_Root | None] | None = None
        task = asyncio.current_task()
        if task is not None and _root.get() is None:
            # A weak reference: a task holds its context, and the two would keep each other.
            self._token = _root.set(weakref.ref(task))

    def __exit__(self, *_: object) -> None:
        if self._token is not None:
            try:  # noqa: SIM105 - `suppress` costs as much as all the rest
                _root.reset(self._token)
            except ValueError:
                # A coroutine that is closed without having ended may be closed in another context.
                pass


class _EngineTask(asyncio.Task[T]):
    """A task that was not started by a step's code, which may cancel only the one it runs in."""

    def cancel(self, msg: Any | None = None) -> bool:
        root = _root.get()
        if root is None or root() is self:
            return super().cancel(msg)
        import structlog

        logger = structlog.get_logger(__name__)
        logger.warning("event_loop.cancel_ignored", coroutine=_name(self))
        return False


def _name(task: "asyncio.Task[Any]") -> str:
    return getattr(task.get_coro(), "__qualname__", "unknown")


def _make_task(loop: asyncio.AbstractEventLoop, coroutine: Any, **named: Any) -> Any:
    kind = _EngineTask if _root.get() is None else asyncio.Task
    return kind(coroutine, loop=loop, **named)


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, as `asyncio.run` does, whatever other tasks raise."""
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        loop.set_task_factory(_make_task)
        task = loop.create_task(main)
        handles_interrupt = _cancel_on_interrupt(loop, task)
        try:
            return _run_to_end(loop, task)
        except asyncio.CancelledError:
            if handles_interrupt and task.cancelling() > 0:
                raise KeyboardInterrupt from None
            raise
        finally:
            if handles_interrupt:
                signal.signal(signal.SIGINT, signal.default_int_handler)


def _run_to_end(loop: asyncio.AbstractEventLoop, task: "asyncio.Task[T]") -> T:
    while True:
        try:
            return loop.run_until_complete(task)
        except (SystemExit, KeyboardInterrupt) as error:
            if task.done():
                raise
            _warn(error)
        except RuntimeError as error:
            # A step's code called `loop.stop()`.
            if task.done() or loop.is_closed():
                raise
            _warn(error)


def _warn(error: BaseException) -> None:
    import structlog

    structlog.get_logger(__name__).warning("event_loop.exit_ignored", raised=type(error).__name__)


def _cancel_on_interrupt(loop: asyncio.AbstractEventLoop, task: "asyncio.Task[Any]") -> bool:
    """Let Ctrl-C cancel the main task, until it handles signals itself.

    A `KeyboardInterrupt` that reaches the loop was then raised by a step's code.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return False
    signal.signal(signal.SIGINT, lambda *_: loop.call_soon_threadsafe(task.cancel))
    return True
