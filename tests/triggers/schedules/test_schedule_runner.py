"""A run over due schedules: what becomes due during a commit is planned at once, and each once."""

import asyncio
from collections.abc import Callable

import pytest

from agent.core.clock import SECOND
from agent.store.db.database import StoreError
from agent.store.db.dialect import Fault
from agent.store.engine import trigger_rows
from agent.tasks.rules.firings.trigger_update import FireResult, TriggerUpdate
from agent.triggers.schedules.schedule_runner import ScheduleRun, run_schedules
from tests.support.trigger_bench import BEGIN, TriggerBench

PATIENCE_SECONDS = 20.0


class Gate:
    """A worker whose commits wait until the test lets them pass."""

    def __init__(self, bench: TriggerBench) -> None:
        self._bench = bench
        self.planned: list[str] = []
        self._is_open = asyncio.Event()
        self._news = asyncio.Event()

    async def fire(self, update: TriggerUpdate) -> FireResult:
        self.planned.append(update.trigger_id.partition(":")[2])
        self._news.set()
        await self._is_open.wait()
        return self._bench.fire(update)

    def open(self) -> None:
        self._is_open.set()

    async def until(self, count: int) -> None:
        """Wait until this number of plans has come."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while len(self.planned) < count:
                self._news.clear()
                await self._news.wait()


def every(seconds: float, name: str = "it", **keys: object) -> dict[str, object]:
    """Return a schedule of equal steps."""
    return {"id": name, "every_seconds": float(seconds), **keys}


def at(seconds: float, name: str) -> dict[str, object]:
    """Return a schedule of one instant."""
    return {"id": name, "at": [f"2027-01-15T08:00:{seconds:09.6f}Z"]}


def running(bench: TriggerBench, gate: Gate) -> "asyncio.Task[ScheduleRun]":
    """Start a run."""
    return asyncio.ensure_future(run_schedules(bench.schedules, gate.fire))


async def ended(run: "asyncio.Task[ScheduleRun]") -> ScheduleRun:
    """Wait for the end of a run."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        return await run


def test_an_instant_does_not_wait_for_the_commit_of_another(bench: TriggerBench) -> None:
    """It is planned at its time although the firing before it is not recorded yet."""

    async def scenario() -> None:
        bench.define(at(10, "first"), at(10.05, "second"), at(50, "third"))
        bench.at(10)
        gate = Gate(bench)
        run = running(bench, gate)
        await gate.until(1)
        bench.at(10.05)
        await gate.until(2)
        assert gate.planned == ["first", "second"]
        assert bench.fates() == []
        gate.open()
        done = await ended(run)
        assert bench.fates() == [(10, "started"), (10.05, "started")]
        assert done.fates == {"started": 2}
        assert done.next_time == BEGIN + 50 * SECOND

    asyncio.run(scenario())


def test_a_trigger_whose_plan_is_under_way_is_not_planned_again(bench: TriggerBench) -> None:
    """Its next instant follows once the firing before is recorded; no plan of a run is stale."""

    async def scenario() -> None:
        bench.define(every(1, overlap="allow"), at(1.05, "other"))
        bench.at(1)
        gate = Gate(bench)
        run = running(bench, gate)
        await gate.until(1)
        bench.at(2)
        await gate.until(2)
        assert gate.planned == ["it", "other"]
        gate.open()
        done = await ended(run)
        assert gate.planned == ["it", "other", "it"]
        assert bench.fates() == [(1, "started"), (1.05, "started"), (2, "started")]
        assert done.next_time == BEGIN + 3 * SECOND

    asyncio.run(scenario())


def test_a_run_ends_although_a_queued_firing_cannot_start(bench: TriggerBench) -> None:
    """What waits for a task to end is tried once a run, not for ever."""

    async def scenario() -> None:
        bench.define(every(60, overlap="queue"))
        gate = Gate(bench)
        gate.open()
        for second in (60, 120):
            bench.at(second)
            await ended(running(bench, gate))
        assert bench.fates() == [(60, "started"), (120, "queued")]
        gate.planned.clear()
        bench.at(130)
        done = await ended(running(bench, gate))
        assert gate.planned == ["it"]
        assert not done.fates
        assert done.next_time == BEGIN + 180 * SECOND

    asyncio.run(scenario())


def test_a_queued_run_starts_at_its_time_within_a_run(bench: TriggerBench) -> None:
    """A run that waits for a commit releases what becomes due meanwhile."""

    async def scenario() -> None:
        bench.define(every(3600, name="late", catch_up="all", stagger_seconds=1.0, overlap="allow"))
        bench.at(2 * 3600 + 120)
        gate = Gate(bench)
        gate.open()
        await ended(running(bench, gate))
        assert bench.fates() == [(3600, "late"), (7200, "queued")]
        bench.at(2 * 3600 + 121)
        done = await ended(running(bench, gate))
        assert bench.fates() == [(3600, "late"), (7200, "late")]
        assert done.next_time == BEGIN + 3 * 3600 * SECOND

    asyncio.run(scenario())


def test_a_lost_database_ends_the_run(bench: TriggerBench) -> None:
    """The error is the caller's, and no plan stays behind."""

    async def scenario() -> None:
        bench.define(at(10, "first"), at(10, "second"))
        bench.at(10)
        abandoned: list[str] = []

        async def fail(update: TriggerUpdate) -> FireResult:
            if update.trigger_id.endswith("first"):
                raise StoreError(Fault.LOST, "gone")
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                abandoned.append(update.trigger_id)
                raise
            raise AssertionError

        with pytest.raises(StoreError):
            async with asyncio.timeout(PATIENCE_SECONDS):
                await run_schedules(bench.schedules, fail)
        assert len(abandoned) == 1

    asyncio.run(scenario())


def test_corrections_read_only_what_has_changed(
    bench: TriggerBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A schedule that is in order is not computed again until it changes or the clock is set back."""
    read: list[list[str]] = []
    find_all: Callable[..., list[trigger_rows.TriggerRow]] = trigger_rows.find_all

    def noting(connection: object, ids: list[str]) -> list[trigger_rows.TriggerRow]:
        read.append([each.partition(":")[2] for each in ids])
        return find_all(connection, ids)

    monkeypatch.setattr(trigger_rows, "find_all", noting)
    bench.define(every(60, "often"), every(3600, "seldom"))
    for second in (0, 30, 60):
        bench.at(second)
        assert bench.correct() == 0
    assert read == [["often", "seldom"], [], []]
    bench.run_pass()
    assert bench.correct() == 0
    assert read[3:] == [["often"]]
    bench.at(-7200)
    assert bench.correct() == 2
    assert read[4:] == [["often", "seldom"]]
    assert bench.correct() == 0
    assert read[5:] == [["often", "seldom"]]
