"""Step functions that block the event loop."""

import asyncio
import time


async def sleep_without_await(seconds: float) -> None:
    """Hold the loop."""
    time.sleep(seconds)  # noqa: ASYNC251


async def sleep_in_a_task(seconds: float) -> None:
    """Hold the loop in a task that this one started."""

    async def inner() -> None:
        time.sleep(seconds)  # noqa: ASYNC251

    await asyncio.gather(inner(), asyncio.sleep(0))


async def sleep_in_a_callback(seconds: float) -> None:
    """Hold the loop in a callback."""
    asyncio.get_running_loop().call_soon(time.sleep, seconds)
    await asyncio.sleep(0.01)


async def hold_the_interpreter(seconds: float) -> int:
    """Compute in one call of native code, which lets no other thread run."""
    began, total = time.monotonic(), 0
    size = 10_000_000
    sum(range(size))
    rate = size / (time.monotonic() - began)
    total += sum(range(int(rate * seconds)))
    return total


async def wait(seconds: float) -> None:
    """Wait as one should."""
    await asyncio.sleep(seconds)
