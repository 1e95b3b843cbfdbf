"""How punctually schedules fire while W runs beside them, and what a firing costs."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final

from agent.config.execution import EngineSettings
from agent.config.models import BudgetSettings
from agent.core.clock import SECOND, to_iso
from agent.daemon.periodic.job_scheduler import JobScheduler
from agent.store.engine import workflow_versions
from agent.tasks.rules.creation import Submission
from agent.tasks.rules.firings.trigger_update import FireResult, TriggerUpdate
from agent.tasks.worker.firings import PendingFirings
from agent.triggers import sync
from agent.triggers.schedules.passes import SchedulePass
from agent.triggers.schedules.schedule_runner import run_schedules
from agent.workflows.graph import Graph
from bench import definitions, load, process, usage
from bench.session import Session, session

Measure = Callable[..., Coroutine[Any, Any, dict[str, Any]]]

LEAD_SECONDS: Final = 3.0
"""From the recording of the schedules to the first instant; W is at its speed by then."""
IN_FLIGHT: Final = 50
_A_YEAR_SECONDS: Final = 31_000_000.0
_OF_A_WORKFLOW: Final = 100
_PATIENCE_SECONDS: Final = 120.0


def main(case: str, url: str, **given: Any) -> dict[str, Any]:
    """Measure one case."""
    cases: dict[str, Measure] = {"punctual": _punctual, "burst": _burst, "alone": _alone}
    return asyncio.run(_with_schedules(url, cases[case], **given))


async def _with_schedules(url: str, measure: Measure, **given: Any) -> dict[str, Any]:
    async with session(url, EngineSettings(slots=IN_FLIGHT, batch=64)) as opened:
        return await measure(opened, **given)


class Schedules:
    """The schedules of a database, driven as in the daemon; notes when firings are durable."""

    def __init__(self, opened: Session) -> None:
        self._opened = opened
        self._clock = opened.database.clock
        self._passing = SchedulePass(opened.database, self._clock, BudgetSettings())
        self._jobs = JobScheduler(self._clock)
        self._jobs.at("schedules", self._run)
        self.lags: list[float] = []
        """Seconds from the time of an instant to the commit of its firing."""
        self._left = 0
        self.cpu_seconds = 0.0
        """Processor time from the recording of the schedules to the last firing."""
        self._has_fired = asyncio.Event()
        self.commits = _CountedFirings()
        opened.worker.firings = self.commits

    async def fire_all(self, seconds: Iterable[float], others: int) -> None:
        """Record schedules that are due some seconds from now, and let them fire."""
        times = list(seconds)
        self._left = len(times)
        await asyncio.to_thread(_record, self._opened, times, others)
        cpu = time.process_time()
        self._jobs.set_time("schedules", self._passing.next_time())
        self._jobs.start()
        async with asyncio.timeout(_PATIENCE_SECONDS):
            await self._has_fired.wait()
        self.cpu_seconds = time.process_time() - cpu
        await self._jobs.stop()
        self._passing.close()

    async def _run(self) -> None:
        run = await run_schedules(self._passing, self._fire)
        self._jobs.set_time("schedules", run.next_time)

    async def _fire(self, update: TriggerUpdate) -> FireResult:
        result = await self._opened.worker.fire(update)
        now = self._clock.now()
        if result.started:
            self.lags += [(now - run.due_at) / SECOND for run in update.runs]
            self._left -= len(update.runs)
        if self._left <= 0:
            self._has_fired.set()
        return result


class _CountedFirings(PendingFirings):
    """Counts the commits that record firings."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def resolve(self, fired: Iterable[tuple[TriggerUpdate, FireResult]]) -> None:
        done = list(fired)
        self.count += any(result.started for _, result in done)
        super().resolve(done)


async def _punctual(
    opened: Session, schedules: int, instants: int, spacing_seconds: float
) -> dict[str, Any]:
    """Let instants become due one after the other while W runs."""
    driven = Schedules(opened)
    beside = Beside(opened)
    spaced = [LEAD_SECONDS + number * spacing_seconds for number in range(instants)]
    async with beside:
        await driven.fire_all(spaced, schedules - instants)
    return {"steps_per_s": beside.steps_per_s, **lag_figures(driven.lags), "rss_mb": usage.rss_mb()}


async def _burst(opened: Session, instants: int) -> dict[str, Any]:
    """Let instants become due all at once, and count the commits that record them."""
    driven = Schedules(opened)
    await driven.fire_all([LEAD_SECONDS] * instants, 0)
    return {
        **lag_figures(driven.lags),
        "write_tx_per_firing": round(driven.commits.count / instants, 4),
        "cpu_ms_per_firing": round(driven.cpu_seconds * 1000 / instants, 3),
    }


async def _alone(opened: Session, instants: int, spacing_seconds: float) -> dict[str, Any]:
    """Compare the commits of a scheduled task with those of one that is submitted."""
    graph = definitions.chain()
    await opened.run_task(Submission(graph=graph))
    before = opened.commits()
    for _ in range(instants):
        await opened.run_task(Submission(graph=graph))
    submitted = (opened.commits() - before) / instants
    driven = Schedules(opened)
    before = opened.commits()
    spaced = [LEAD_SECONDS + number * spacing_seconds for number in range(instants)]
    await driven.fire_all(spaced, 0)
    await asyncio.sleep(spacing_seconds)
    # All schedules are recorded in one transaction.
    total = opened.commits() - before - 1
    before = opened.commits()
    await asyncio.sleep(LEAD_SECONDS + instants * spacing_seconds)
    # Without the heartbeats of as long a time.
    scheduled = (total - (opened.commits() - before)) / instants
    return {
        **lag_figures(driven.lags),
        "write_tx_per_task": round(scheduled, 3),
        "write_tx_more": round(scheduled - submitted, 3),
    }


class Beside:
    """W with a fixed number in flight, for as long as the block lasts."""

    def __init__(self, opened: Session) -> None:
        self._opened = opened
        self._graph = definitions.chain()
        self._ended = 0
        self.steps_per_s = 0.0

    async def __aenter__(self) -> None:
        self._task = asyncio.create_task(self._run())
        self._start = time.perf_counter()

    async def __aexit__(self, *_: object) -> None:
        seconds = time.perf_counter() - self._start
        self.steps_per_s = round(self._ended * definitions.STEPS / seconds, 1)
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        await load.put_on(self._run_one, self._opened.commits, IN_FLIGHT, 10**9)

    async def _run_one(self) -> None:
        await self._opened.run_task(Submission(graph=self._graph))
        self._ended += 1


def lag_figures(lags: list[float]) -> dict[str, float]:
    """Return the median and the 99th percentile of lags."""
    latest = sorted(lags)[min(len(lags) - 1, int(len(lags) * 0.99))]
    return {"p50_ms": usage.p50_ms(lags), "p99_ms": round(latest * 1000, 3)}


def _record(opened: Session, seconds: list[float], others: int) -> None:
    """Record schedules that are due soon, and others that are due in a year."""
    database = opened.database
    times = [*seconds, *(_A_YEAR_SECONDS + number for number in range(others))]
    chain = definitions.chain().model_dump(exclude_defaults=True)
    with database.connect("writer") as connection, connection.transaction():
        now = database.clock.now()
        for first in range(0, len(times), _OF_A_WORKFLOW):
            blocks = [
                {"id": f"s{first + number}", "at": [to_iso(now + int(each * SECOND))]}
                for number, each in enumerate(times[first : first + _OF_A_WORKFLOW])
            ]
            name = f"scheduled-{first // _OF_A_WORKFLOW}"
            graph = Graph.model_validate({**chain, "name": name, "on": {"schedule": blocks}})
            version = workflow_versions.register(
                connection, graph.name, graph.hash, graph.text, None, None, now
            )
            sync.sync_workflow(connection, graph, version, None, now)


if __name__ == "__main__":
    process.answer(main)
