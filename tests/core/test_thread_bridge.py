"""Bridges from an event loop to threads, and to another event loop."""

import asyncio
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from agent.core import thread_bridge
from agent.core.thread_bridge import LoopBridge, LoopEndedError, ThreadBridge, UnboundedThreads


async def until(is_so: Callable[[], bool]) -> None:
    """Wait for something that a thread does."""
    async with asyncio.timeout(60):
        while not is_so():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


def test_a_bridge_runs_functions_in_order() -> None:
    """One thread, first in, first out."""
    order: list[int] = []

    async def main() -> list[int]:
        bridge = ThreadBridge("test")
        work = [bridge.run(partial(order.append, number)) for number in range(20)]
        await asyncio.gather(*work)
        bridge.close()
        bridge.join()
        return order

    assert asyncio.run(main()) == list(range(20))


def test_a_cancelled_caller_leaves_the_function_pending() -> None:
    """It counts until it has ended, and its error still reaches `on_error`."""
    errors: list[BaseException] = []

    async def main() -> None:
        bridge = ThreadBridge("test", on_error=errors.append)
        release = threading.Event()

        def work() -> None:
            assert release.wait(60)
            raise ValueError("late")

        caller = asyncio.create_task(bridge.run(work))
        await asyncio.sleep(0)
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        assert bridge.pending == 1
        release.set()
        await until(lambda: bridge.pending == 0)
        bridge.close()
        bridge.join()

    asyncio.run(main())
    assert [str(error) for error in errors] == ["late"]


def test_each_thread_of_a_bridge_cleans_up_after_itself() -> None:
    """`on_thread_end` runs in every thread, also when the loop was closed first."""
    ended: list[str] = []

    def note_end() -> None:
        ended.append(threading.current_thread().name)

    async def main() -> ThreadBridge:
        bridge = ThreadBridge("test", 3, on_thread_end=note_end)
        assert await asyncio.gather(*(bridge.run(lambda: 7) for _ in range(9))) == [7] * 9
        return bridge

    bridge = asyncio.run(main())
    bridge.close()
    bridge.join()
    assert sorted(ended) == ["test-0", "test-1", "test-2"]


@pytest.mark.parametrize("threads", [ThreadBridge("test").run, UnboundedThreads().start])
def test_a_stop_iteration_does_not_leave_the_caller_waiting(
    threads: Callable[[Callable[[], object]], "asyncio.Future[object]"],
) -> None:
    """A future refuses `StopIteration`; the caller gets another error instead."""

    def work() -> object:
        raise StopIteration(1)

    async def main() -> None:
        async with asyncio.timeout(60):
            with pytest.raises(RuntimeError, match=r"StopIteration\(1\)"):
                await threads(work)

    asyncio.run(main())


def test_a_function_without_a_thread_does_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """When no thread can be started the caller hears of it, and no later thread runs the function."""
    ran: list[str] = []

    async def main() -> None:
        threads = UnboundedThreads()

        def refuse(_: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            with pytest.raises(RuntimeError):
                threads.start(lambda: ran.append("refused"))
        await threads.start(lambda: ran.append("started"))
        await asyncio.sleep(0.05)

    asyncio.run(main())
    assert ran == ["started"]


def test_idle_threads_are_reused_and_keep_nothing_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next function runs in the same thread; a result is freed with its caller."""
    monkeypatch.setattr(thread_bridge, "IDLE_SECONDS", 0.2)

    class Value:
        pass

    async def main() -> threading.Thread:
        threads = UnboundedThreads()
        first = await threads.start(threading.current_thread)
        await until(lambda: threads._idle == 1)
        assert await threads.start(threading.current_thread) is first
        freed = weakref.ref(await threads.start(Value))
        await until(lambda: freed() is None)
        return first

    thread = asyncio.run(main())
    deadline = time.monotonic() + 60
    while thread.is_alive() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not thread.is_alive()


@pytest.fixture
def other_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """Return the event loop of another thread."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    yield loop
    if not loop.is_closed():
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def test_coroutines_run_in_the_other_loop(other_loop: asyncio.AbstractEventLoop) -> None:
    """Results and errors come back to the callers, each to its own."""

    async def double(number: int) -> int:
        assert asyncio.get_running_loop() is other_loop
        await asyncio.sleep(0)
        if number == 3:
            raise ValueError("three")
        return number * 2

    async def call() -> list[int | BaseException]:
        bridge = LoopBridge(other_loop)
        calls = (bridge.run(double(number)) for number in range(100))
        return await asyncio.gather(*calls, return_exceptions=True)

    results = asyncio.run(call())
    assert [number for number in results if not isinstance(number, BaseException)] == [
        number * 2 for number in range(100) if number != 3
    ]
    assert isinstance(results[3], ValueError)


def test_what_crosses_together_shares_a_wake_up(
    other_loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls that come while the other loop is busy post to it once."""
    posts: list[asyncio.AbstractEventLoop] = []
    post = thread_bridge._post

    def counting(loop: asyncio.AbstractEventLoop, *given: Any) -> bool:
        posts.append(loop)
        return post(loop, *given)

    monkeypatch.setattr(thread_bridge, "_post", counting)
    is_free = threading.Event()

    async def call() -> list[int]:
        other_loop.call_soon_threadsafe(is_free.wait)
        bridge = LoopBridge(other_loop)
        calls = asyncio.gather(*(bridge.run(asyncio.sleep(0, number)) for number in range(100)))
        await asyncio.sleep(0)
        assert posts == [other_loop]
        is_free.set()
        return await calls

    assert asyncio.run(call()) == list(range(100))


def test_a_cancelled_caller_cancels_the_coroutine(other_loop: asyncio.AbstractEventLoop) -> None:
    """The coroutine in the other loop sees the cancellation."""
    cancelled = threading.Event()

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    async def call() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await LoopBridge(other_loop).run(wait())

    asyncio.run(call())
    assert cancelled.wait(10)


def test_a_loop_that_ends_says_so(other_loop: asyncio.AbstractEventLoop) -> None:
    """It cancels what runs in it; its caller was not cancelled, and gets an error."""

    async def cancelled() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    async def call() -> None:
        with pytest.raises(LoopEndedError):
            await LoopBridge(other_loop).run(cancelled())

    asyncio.run(call())


def test_a_closed_loop_runs_nothing() -> None:
    """The caller gets an error instead of waiting for ever, each time."""
    closed = asyncio.new_event_loop()
    closed.close()

    async def never() -> None:
        raise AssertionError("this must not run")

    async def call() -> None:
        bridge = LoopBridge(closed)
        for _ in range(2):
            with pytest.raises(LoopEndedError, match="has ended"):
                await bridge.run(never())

    asyncio.run(call())
