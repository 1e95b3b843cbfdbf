"""The workload W: runs tasks with a fixed number in flight, and measures."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from bench import usage
from bench.commits import Count
from bench.definitions import STEPS

_MOST_TO_WARM_UP = 50

RunOne = Callable[[], Awaitable[None]]
"""Submits one task of five steps and returns when its end is durable."""


async def put_on(run_one: RunOne, commits: Count, in_flight: int, tasks: int) -> dict[str, Any]:
    """Run tasks with a fixed number in flight; return the measurements."""
    await _run(run_one, min(in_flight, _MOST_TO_WARM_UP), 2 * min(in_flight, _MOST_TO_WARM_UP))
    before = commits()
    cpu = time.process_time()
    start = time.perf_counter()
    latencies = await _run(run_one, in_flight, tasks)
    elapsed = time.perf_counter() - start
    cpu = time.process_time() - cpu
    return {
        "steps_per_s": round(tasks * STEPS / elapsed, 1),
        "p50_ms": usage.p50_ms(latencies),
        "write_tx_per_task": round((commits() - before) / tasks, 3),
        "cpu_ms_per_task": round(cpu * 1000 / tasks, 3),
        "rss_mb": usage.rss_mb(),
    }


async def _run(run_one: RunOne, in_flight: int, tasks: int) -> list[float]:
    latencies: list[float] = []
    left = tasks

    async def keep_one_in_flight() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            start = time.perf_counter()
            await run_one()
            latencies.append(time.perf_counter() - start)

    async with asyncio.TaskGroup() as group:
        for _ in range(in_flight):
            group.create_task(keep_one_in_flight())
    return latencies
