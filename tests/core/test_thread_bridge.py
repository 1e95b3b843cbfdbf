"""Bridges from an event loop to threads."""

import asyncio
import threading
import time
import weakref
from collections.abc import Callable
from functools import partial

import pytest

from agent.core import thread_bridge
from agent.core.thread_bridge import ThreadBridge, UnboundedThreads


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
