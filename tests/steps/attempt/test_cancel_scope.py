"""The time of an attempt: long ones share a timer, and each ends at its own time."""

import asyncio

import pytest

from agent.steps.attempt import cancel_scope
from agent.steps.attempt.cancel_scope import CancelScope, complete


@pytest.fixture(autouse=True)
def _short_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cancel_scope, "_LONG_SECONDS", 0.0)


async def _held(seconds: float, ended: list[float]) -> None:
    with CancelScope(seconds) as held:
        await asyncio.sleep(10)
    assert held.is_over()
    ended.append(seconds)


def test_each_ends_at_its_own_time() -> None:
    """Also one that begins after another and ends before it."""
    ended: list[float] = []

    async def story() -> None:
        await asyncio.gather(*(_held(seconds, ended) for seconds in (0.3, 0.1, 0.2, 0.1)))

    asyncio.run(asyncio.wait_for(story(), 5))
    assert ended == [0.1, 0.1, 0.2, 0.3]


def test_the_timer_does_not_cancel_an_ended_scope() -> None:
    """The shared timer stays set."""

    async def story() -> None:
        with CancelScope(0.05) as first:
            pass
        await asyncio.sleep(0.1)
        with CancelScope(5.0) as second:
            await asyncio.sleep(0)
        assert not first.is_over()
        assert not second.is_over()

    asyncio.run(asyncio.wait_for(story(), 5))


def test_one_that_is_ended_from_outside_leaves_the_timer() -> None:
    """It is cancelled once, whatever its time would have been."""

    async def story() -> None:
        with CancelScope(0.05) as held:
            held.end_soon()
            await asyncio.sleep(10)
        assert held.is_over()
        await asyncio.sleep(0.1)

    asyncio.run(asyncio.wait_for(story(), 5))


def test_every_loop_has_its_own_timer() -> None:
    """A loop that has ended leaves nothing behind that the next one waits for."""
    for _ in range(3):
        ended: list[float] = []
        asyncio.run(_held(0.05, ended))
        assert ended == [0.05]


def test_work_that_must_not_be_lost_completes_after_every_cancellation() -> None:
    """The result is there, and the cancellation can be raised again."""

    async def story() -> None:
        work = asyncio.ensure_future(asyncio.sleep(0.2, "done"))
        waiting = asyncio.ensure_future(complete(work))
        for _ in range(3):
            await asyncio.sleep(0.01)
            waiting.cancel()
        result, cancellation = await waiting
        assert result == "done"
        assert isinstance(cancellation, asyncio.CancelledError)
        assert await complete(work) == ("done", None)

    asyncio.run(asyncio.wait_for(story(), 5))
