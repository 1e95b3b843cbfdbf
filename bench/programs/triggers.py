"""How punctually schedules fire while W runs beside them, and what a firing costs."""

import asyncio
import time
from typing import Any, Final

from agent.config.models import BudgetSettings
from agent.config.settings import EngineSettings
from agent.core.clock import SECOND
from agent.daemon.job_scheduler import JobScheduler
from agent.store.engine import trigger_rows, workflow_versions
from agent.tasks.rules.creation import Submission
from agent.triggers import sync
from agent.triggers.passes import SchedulePass
from agent.triggers.schedule_runner import run_schedules
from agent.workflows.graph import Graph
from bench import definitions, load, process, usage
from bench.session import Session, session

_LEAD_SECONDS: Final = 2.0
_IN_FLIGHT: Final = 50


def main(url: str, schedules: int, instants: int, tasks: int) -> dict[str, Any]:
    """Let `instants` of the schedules become due one after the other while W runs."""
    return asyncio.run(_measure(url, schedules, instants, tasks))


async def _measure(url: str, schedules: int, instants: int, tasks: int) -> dict[str, Any]:
    settings = EngineSettings(slots=_IN_FLIGHT, batch=64)
    async with session(url, settings) as opened:
        spacing = 0.02
        _record(opened, schedules, instants, spacing)
        passing = SchedulePass(opened.database, opened.database.clock, BudgetSettings())
        jobs = JobScheduler(opened.database.clock)

        async def fire() -> None:
            run = await run_schedules(passing, opened.worker.fire)
            jobs.set_time("schedules", run.next_time)

        jobs.at("schedules", fire)
        jobs.set_time("schedules", passing.next_time())
        jobs.start()
        beside = asyncio.create_task(_run_w(opened, tasks))
        seconds = _LEAD_SECONDS + instants * spacing + 1.0
        await asyncio.sleep(seconds)
        beside.cancel()
        await asyncio.gather(beside, return_exceptions=True)
        await jobs.stop()
        passing.close()
        lags = _lags(opened)
    return {
        "instants": len(lags),
        "p50_ms": usage.p50_ms(lags),
        "p99_ms": round(sorted(lags)[int(len(lags) * 0.99)] * 1000, 3) if lags else None,
        "rss_mb": usage.rss_mb(),
    }


async def _run_w(opened: Session, tasks: int) -> None:
    graph = definitions.chain()
    while True:
        await load.put_on(
            lambda: opened.run_task(Submission(graph=graph)), opened.commits, _IN_FLIGHT, tasks
        )


def _record(opened: Session, schedules: int, instants: int, spacing: float) -> None:
    """Record schedules: some are due soon, one after the other, the others in a year."""
    now = opened.database.clock.now()
    chain = definitions.chain().model_dump(exclude_defaults=True)
    blocks = []
    for number in range(schedules):
        seconds = _LEAD_SECONDS + number * spacing if number < instants else 31_000_000 + number
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now / SECOND + seconds))
        fraction = int((now / SECOND + seconds) % 1 * 1_000_000)
        block = {"id": f"s{number}", "at": [f"{at}.{fraction:06d}+00:00"], "overlap": "skip"}
        blocks.append(block)
    graph = Graph.model_validate({**chain, "name": "scheduled", "on": {"schedule": blocks}})
    with opened.database.connect("writer") as connection, connection.transaction():
        version = workflow_versions.register(
            connection, graph.name, graph.hash, graph.text, None, None, now
        )
        sync.sync_workflow(connection, graph, version, None, now)


def _lags(opened: Session) -> list[float]:
    """Return how long after its time each instant was recorded."""
    with opened.database.connect("reader") as connection:
        rows = trigger_rows.all_rows(connection)
        firings = [each for row in rows for each in trigger_rows.firings_of(connection, row.id, 1)]
    return [(each["recorded_at"] - each["due_at"]) / SECOND for each in firings if each["due_at"]]


if __name__ == "__main__":
    process.answer(main)
