"""Calls a handler: a function in this thread, a coroutine function in an event loop."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from typing import Any

from agent.queue import handlers
from agent.queue.lease import Lease
from agent.queue.work import AsyncWork, Work


def call(function: handlers.Handler, lease: Lease, loop: asyncio.AbstractEventLoop | None) -> Any:
    """Call a handler and return its result, or raise its exception; blocks until it has ended."""
    if not handlers.is_async(function):
        return function(Work(lease))
    assert loop is not None
    ended: Future[Any] = Future()

    async def contained() -> None:
        # Nothing that a handler raises may reach the loop: SystemExit would end it.
        try:
            ended.set_result(await function(AsyncWork(lease)))
        except BaseException as error:
            ended.set_exception(error)

    def start() -> None:
        task = loop.create_task(contained())
        task.add_done_callback(_unless_begun)
        lease.on_end(partial(loop.call_soon_threadsafe, task.cancel))

    def _unless_begun(_: "asyncio.Task[None]") -> None:
        # A task that is cancelled before its first step never enters its coroutine.
        if not ended.done():
            ended.set_exception(asyncio.CancelledError())

    loop.call_soon_threadsafe(start)
    return ended.result()


@contextmanager
def own_loop(*, is_needed: bool) -> Iterator[asyncio.AbstractEventLoop | None]:
    """Run an event loop in a thread of its own for as long as the block lasts."""
    if not is_needed:
        yield None
        return
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="agent event loop", daemon=True)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
