"""The workload W on our engine, from its API or from a workflow file."""

import asyncio
from pathlib import Path
from typing import Any

from agent.config.execution import EngineSettings
from agent.tasks.rules.creation import Submission
from agent.workflows import loader
from bench import definitions, load, process
from bench.session import session


def main(url: str, in_flight: int, tasks: int, file: str | None = None) -> dict[str, Any]:
    """Measure; with a file, its graph is what is run."""
    return asyncio.run(_measure(url, in_flight, tasks, file))


async def _measure(url: str, in_flight: int, tasks: int, file: str | None) -> dict[str, Any]:
    given: dict[str, Any] = {"graph": definitions.chain()}
    if file is not None:
        loaded = loader.load(Path(file))
        given = {"graph": loaded.graph, "source": loaded.text, "path": file}
    # As many slots as tasks in flight: the benchmark measures commits, not queueing.
    settings = EngineSettings(slots=max(in_flight, 50), batch=max(min(in_flight, 1000), 64))
    async with session(url, settings) as opened:
        return await load.put_on(
            lambda: opened.run_task(Submission(**given)), opened.commits, in_flight, tasks
        )


if __name__ == "__main__":
    process.answer(main)
