"""The same with APScheduler's own job store on SQLite: one stored job an instant, each a no-op.

APScheduler runs no tasks. So that both have the same load beside them, W runs in this process too, with
our engine, on a database of its own.
"""

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.date import DateTrigger
from sqlalchemy import create_engine, event

from agent.config.execution import EngineSettings
from bench import process, usage
from bench.programs.triggers import IN_FLIGHT, LEAD_SECONDS, Beside, Measure, lag_figures
from bench.session import session

_A_YEAR: Final = timedelta(days=365)
_ADDING_SECONDS: Final = 0.02
"""The longest time in which a job is stored, in a transaction of its own."""
_lags: list[float] = []
_ran = asyncio.Semaphore(0)


def main(case: str, url: str, **given: Any) -> dict[str, Any]:
    """Measure one case; `url` is where its jobs are stored."""
    cases: dict[str, Measure] = {"punctual": _punctual, "burst": _burst, "rest": _rest}
    return asyncio.run(cases[case](url, **given))


async def note(due: float) -> None:
    """Be a job: note how late it runs."""
    _lags.append(time.time() - due)
    _ran.release()


class _Jobs:
    """A scheduler with stored jobs, whose commits are counted."""

    def __init__(self, url: str) -> None:
        engine = create_engine(url)
        event.listen(engine, "connect", _be_durable)
        event.listen(engine, "commit", self._count)
        self.commits = 0
        self._scheduler = AsyncIOScheduler(
            jobstores={"default": SQLAlchemyJobStore(engine=engine)},
            job_defaults={"misfire_grace_time": None, "coalesce": True},
            timezone=UTC,
        )

    def _count(self, _: object) -> None:
        self.commits += 1

    def add(self, delays: list[float], others: int) -> None:
        """Store jobs that are due soon, and others that are due in a year."""
        self._scheduler.start(paused=True)
        later = datetime.now(UTC) + _A_YEAR
        for number in range(others):
            at = later + timedelta(seconds=number)
            self._scheduler.add_job(note, DateTrigger(at), args=[0.0])
        first = time.time() + LEAD_SECONDS + len(delays) * _ADDING_SECONDS
        for delay in delays:
            due = first + delay
            at = datetime.fromtimestamp(due, UTC)
            self._scheduler.add_job(note, DateTrigger(at), args=[due])
        if delays and time.time() > first - LEAD_SECONDS / 2:
            raise RuntimeError("storing the jobs took until they were due")
        self.commits = 0

    async def run(self, count: int) -> None:
        """Let the jobs run that are due soon."""
        self._scheduler.resume()
        for _ in range(count):
            await _ran.acquire()
        self._scheduler.shutdown(wait=False)

    async def rest(self, seconds: float) -> float:
        """Let nothing be due; return the share of a core that this takes."""
        self._scheduler.resume()
        await asyncio.sleep(1.0)
        cpu = time.process_time()
        await asyncio.sleep(seconds)
        used = time.process_time() - cpu
        self._scheduler.shutdown(wait=False)
        return used / seconds


def _be_durable(connection: Any, _: object) -> None:
    # As our file: a commit is on the disk when it returns.
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")


async def _punctual(
    url: str, w_url: str, schedules: int, instants: int, spacing_seconds: float
) -> dict[str, Any]:
    jobs = _Jobs(url)
    jobs.add([number * spacing_seconds for number in range(instants)], schedules - instants)
    async with session(w_url, EngineSettings(slots=IN_FLIGHT, batch=64)) as opened:
        beside = Beside(opened)
        async with beside:
            await jobs.run(instants)
    return {"steps_per_s": beside.steps_per_s, **lag_figures(_lags), "rss_mb": usage.rss_mb()}


async def _burst(url: str, instants: int) -> dict[str, Any]:
    jobs = _Jobs(url)
    jobs.add([0.0] * instants, 0)
    cpu = time.process_time()
    await jobs.run(instants)
    return {
        **lag_figures(_lags),
        "write_tx_per_firing": round(jobs.commits / instants, 4),
        "cpu_ms_per_firing": round((time.process_time() - cpu) * 1000 / instants, 3),
    }


async def _rest(url: str, schedules: int, seconds: float) -> dict[str, Any]:
    jobs = _Jobs(url)
    jobs.add([], schedules)
    share = await jobs.rest(seconds)
    return {"rss_mb": usage.rss_mb(), "cpu_percent": round(share * 100, 2)}


if __name__ == "__main__":
    process.answer(main)
