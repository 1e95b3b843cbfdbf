"""The event loop of a process that runs steps: no `SystemExit` from a step's code ends it.

asyncio raises `SystemExit` and `KeyboardInterrupt` out of the loop whichever task or callback raised
them. The runner contains those of a step's own call. What remains are the tasks and the callbacks
that a step's code starts itself: their exception reaches the code that awaits them, and the loop
goes on with everything else.
"""

import asyncio
import signal
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

import structlog

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, as `asyncio.run` does, and outlive what other tasks raise."""
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
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
        except (SystemExit, KeyboardInterrupt) as problem:
            if task.done():
                raise
            _warn(problem)
        except RuntimeError as problem:
            # A step's code called `loop.stop()`.
            if task.done() or loop.is_closed():
                raise
            _warn(problem)


def _warn(problem: BaseException) -> None:
    structlog.get_logger(__name__).warning("event_loop.exit_ignored", raised=type(problem).__name__)


def _cancel_on_interrupt(loop: asyncio.AbstractEventLoop, task: "asyncio.Task[Any]") -> bool:
    """Let Ctrl-C cancel the main task, until it handles signals itself.

    A `KeyboardInterrupt` that reaches the loop was then raised by a step's code.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return False
    signal.signal(signal.SIGINT, lambda *_: loop.call_soon_threadsafe(task.cancel))
    return True
