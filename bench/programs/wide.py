"""What one step costs in a wide task, and in narrow ones."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from statistics import median
from typing import Any, Final

from agent.tasks.rules.creation import Submission
from agent.workflows.graph import Graph
from bench import definitions, process
from bench.session import Session, session

_REPEATS: Final = 3
_ALONE: Final = 10
"""Narrow tasks run one after the other in one measurement."""


def main(url: str, narrow: int, wide: int) -> list[dict[str, Any]]:
    """Measure both ways of being wide: a group of items, and a graph that fans out and in."""
    return asyncio.run(_measure(url, narrow, wide))


async def _measure(url: str, narrow: int, wide: int) -> list[dict[str, Any]]:
    shapes: dict[str, Callable[[int], Graph]] = {
        "group": definitions.group,
        "graph": definitions.diamonds,
    }
    rows = []
    async with session(url) as opened:
        for shape, build in shapes.items():
            small, large = build(narrow), build(wide)
            for graph in (small, large):
                await opened.run_task(Submission(graph))
            beside = wide // narrow
            for case, count, run in (
                (f"{narrow} alone", narrow * _ALONE, _one_by_one(opened, small, _ALONE)),
                (f"{narrow} at once", narrow * beside, _at_once(opened, small, beside)),
                (f"{wide}", wide, _at_once(opened, large, 1)),
            ):
                rows.append({"shape": shape, "case": case, **await _timed(run, count)})
    return rows


def _one_by_one(opened: Session, graph: Graph, tasks: int) -> Callable[[], Awaitable[None]]:
    async def run() -> None:
        for _ in range(tasks):
            await opened.run_task(Submission(graph))

    return run


def _at_once(opened: Session, graph: Graph, tasks: int) -> Callable[[], Awaitable[None]]:
    async def run() -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(tasks):
                group.create_task(opened.run_task(Submission(graph)))

    return run


async def _timed(run: Callable[[], Awaitable[None]], steps: int) -> dict[str, float]:
    elapsed, cpu = [], []
    for _ in range(_REPEATS):
        start, cpu_start = time.perf_counter(), time.process_time()
        await run()
        elapsed.append(time.perf_counter() - start)
        cpu.append(time.process_time() - cpu_start)
    return {
        "steps_per_s": round(steps / median(elapsed), 1),
        "ms_per_step": round(median(elapsed) * 1000 / steps, 4),
        "cpu_ms_per_step": round(median(cpu) * 1000 / steps, 4),
    }


if __name__ == "__main__":
    process.answer(main)
