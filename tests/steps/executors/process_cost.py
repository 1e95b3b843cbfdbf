"""Measures what a step costs in a warm process, beside the same step in the agent's own process.

`python -m tests.steps.executors.process_cost` prints the processor time of both, children included.
"""

import asyncio
import resource
import sys
import time

from agent.config.executors import ExecutorSettings, ProcessSettings
from agent.steps.executors.process_pool import ProcessPool
from agent.steps.executors.registry import Executors
from agent.store.artifacts.blobs import BlobStores
from tests.support.attempt import Trial

STEPS = 1000


def _seconds() -> float:
    total = 0.0
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        used = resource.getrusage(who)
        total += used.ru_utime + used.ru_stime
    return total


async def run_steps(executor: str, count: int) -> None:
    """Run a step again and again, and end the process that ran it."""
    config = {"call": "tests.support.process_functions:name_of_process"}
    trial = Trial("python", config, options={"executor": {"name": executor}})
    settings = ExecutorSettings(process=ProcessSettings(processes=1))
    trial.services.executors = Executors("local", settings, "/nowhere", BlobStores, "")
    for _ in range(count):
        await trial.attempt()
    pool = trial.services.resources.get("process pool")
    exits = [worker._exit for worker in pool._idle] if isinstance(pool, ProcessPool) else []
    await trial.services.aclose()
    await asyncio.gather(*exits)


def measure(executor: str, count: int) -> tuple[float, float]:
    """Return processor time and wall time in milliseconds; a child counts once it has ended."""
    cpu, wall = _seconds(), time.monotonic()
    asyncio.run(run_steps(executor, count))
    return (_seconds() - cpu) * 1000, (time.monotonic() - wall) * 1000


def main() -> None:
    """Measure both executors; the difference of two runs leaves out what starting costs."""
    for executor in ("local", "process"):
        few, many = measure(executor, 1), measure(executor, 1 + STEPS)
        cpu, wall = ((last - first) / STEPS for first, last in zip(few, many, strict=True))
        sys.stdout.write(f"{executor}: {cpu:.2f} ms of processor time, {wall:.2f} ms a step\n")


if __name__ == "__main__":
    main()
