"""The scheduler of the daemon's jobs: intervals, instants, failures, clocks that jump, the end."""

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextvars import ContextVar
from datetime import datetime, timedelta, tzinfo
from typing import Any

import apscheduler.schedulers.base
import pytest
import structlog.testing

from agent.core.clock import SECOND, Clock
from agent.daemon.periodic import job_scheduler
from agent.daemon.periodic.clock_jumps import ClockJumps
from agent.daemon.periodic.job_scheduler import JobScheduler

PATIENCE_SECONDS = 30
HOUR = 3600.0
SOON = 0.02


class MachineClock(Clock):
    """A machine's clock that the test sets; APScheduler follows it too."""

    def __init__(self) -> None:
        super().__init__()
        self.jumped_seconds = 0.0

    def machine_now(self) -> int:
        return super().machine_now() + int(self.jumped_seconds * SECOND)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> MachineClock:
    """Return a clock; what APScheduler and the scheduler read of the machine's clock is its own."""
    clock = MachineClock()

    class ShiftedDatetime(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> "ShiftedDatetime":
            return super().now(tz) + timedelta(seconds=clock.jumped_seconds)

    monkeypatch.setattr(apscheduler.schedulers.base, "datetime", ShiftedDatetime)
    monkeypatch.setattr(job_scheduler, "datetime", ShiftedDatetime)
    return clock


class Calls:
    """Counts the runs of a job; a test waits for the next one."""

    def __init__(self, then: Callable[[], None] | None = None) -> None:
        self.values: list[Any] = []
        self.at: list[float] = []
        self._then = then
        self._has_run = asyncio.Event()

    async def run(self, *args: Any) -> None:
        self.values.append(args)
        self.at.append(time.monotonic())
        self._has_run.set()
        if self._then is not None:
            self._then()

    async def reach(self, count: int) -> None:
        """Wait until the job has run this often."""
        while len(self.values) < count:
            self._has_run.clear()
            await self._has_run.wait()


@contextlib.asynccontextmanager
async def running(jobs: JobScheduler) -> AsyncIterator[None]:
    """Run the jobs while the block lasts."""
    jobs.start()
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            yield
    finally:
        await jobs.stop()


def run(test: Callable[[], Awaitable[None]]) -> None:
    """Run an async test."""

    async def awaited() -> None:
        await test()

    asyncio.run(awaited())


def test_a_job_runs_at_the_start_and_then_with_its_interval(clock: MachineClock) -> None:
    """Async functions run on the loop, others in a thread; other jobs are not delayed."""
    threads: list[str] = []

    async def scenario() -> None:
        jobs, calls, seldom = JobScheduler(clock), Calls(), Calls()
        jobs.every("often", SOON, calls.run)
        jobs.every("in a thread", SOON, lambda: threads.append(threading.current_thread().name))
        jobs.every("seldom", HOUR, seldom.run)
        async with running(jobs):
            await calls.reach(5)
            while len(threads) < 2:
                await calls.reach(len(calls.values) + 1)
        assert calls.at[4] - calls.at[0] >= 3 * SOON
        assert len(seldom.values) == 1

    run(scenario)
    assert set(threads) == {"job"}


@pytest.mark.parametrize(
    "problem", [ValueError("a defect"), SystemExit(3), asyncio.CancelledError()]
)
def test_a_job_that_fails_runs_again(clock: MachineClock, problem: BaseException) -> None:
    """Each failure is logged with the job's name; whatever it raises ends nothing else."""

    def fail() -> None:
        raise problem

    async def scenario() -> None:
        jobs, calls = JobScheduler(clock), Calls(fail)
        threaded: list[int] = []

        def fail_in_thread() -> None:
            threaded.append(1)
            fail()

        jobs.every("failing", SOON, calls.run)
        jobs.every("failing too", SOON, fail_in_thread)
        with structlog.testing.capture_logs() as logs:
            async with running(jobs):
                await calls.reach(3)
                while len(threaded) < 2:
                    await calls.reach(len(calls.values) + 1)
        failed = [line["job"] for line in logs if line["event"] == "job.failed"]
        assert {"failing", "failing too"} == set(failed)

    run(scenario)


def test_a_slow_job_does_not_overlap_itself(clock: MachineClock) -> None:
    """Runs that come due meanwhile are left out, not made up for."""
    active, most, runs = 0, 0, 0
    lock = threading.Lock()
    may_end = threading.Event()

    def slow() -> None:
        nonlocal active, most, runs
        with lock:
            active, runs = active + 1, runs + 1
            most = max(most, active)
        may_end.wait(PATIENCE_SECONDS)
        with lock:
            active -= 1

    async def scenario() -> None:
        jobs, calls = JobScheduler(clock), Calls()
        jobs.every("slow", SOON, slow)
        jobs.every("quick", SOON, calls.run)
        async with running(jobs):
            await calls.reach(10)
            assert runs == 1
            may_end.set()
            while runs < 2:
                await calls.reach(len(calls.values) + 1)

    run(scenario)
    assert most == 1


def test_a_job_runs_at_the_instant_that_is_set(clock: MachineClock) -> None:
    """Not before, once per instant; a later setting replaces an earlier one, None clears it."""

    async def scenario() -> None:
        jobs, calls, never, past = JobScheduler(clock), Calls(), Calls(), Calls()
        jobs.at("schedules", calls.run)
        jobs.at("never", never.run)
        jobs.at("past", past.run)
        jobs.set_time("past", clock.now() - SECOND)
        jobs.set_time("never", clock.now() - SECOND)
        jobs.set_time("never", None)
        async with running(jobs):
            await past.reach(1)
            jobs.set_time("schedules", clock.now() + int(HOUR * SECOND))
            instant = clock.now() + SECOND // 10
            jobs.set_time("schedules", instant)
            jobs.set_time("never", instant)
            jobs.set_time("never", None)
            await calls.reach(1)
            assert clock.now() >= instant
            await asyncio.to_thread(jobs.set_time, "schedules", clock.now())
            await calls.reach(2)
        assert (len(calls.values), len(never.values), len(past.values)) == (2, 0, 1)

    run(scenario)


def test_instants_are_those_of_the_injected_clock(clock: MachineClock) -> None:
    """The database's clock may be ahead of this machine's."""
    clock.set_to(clock.machine_now() + int(HOUR * SECOND))

    async def scenario() -> None:
        jobs, calls, later = JobScheduler(clock), Calls(), Calls()
        jobs.at("due", calls.run)
        jobs.at("later", later.run)
        jobs.set_time("due", clock.now())
        jobs.set_time("later", clock.now() + int(HOUR / 2 * SECOND))
        async with running(jobs):
            await calls.reach(1)
        assert later.values == []

    run(scenario)


@pytest.mark.parametrize("is_async", [True, False])
def test_an_instant_set_during_a_run_is_not_lost(clock: MachineClock, *, is_async: bool) -> None:
    """A job answers with its own next instant; what another caller found due meanwhile counts too."""
    runs = 0

    async def scenario() -> None:
        nonlocal runs
        jobs, is_over = JobScheduler(clock), asyncio.Event()
        loop = asyncio.get_running_loop()

        def look() -> None:
            nonlocal runs
            runs += 1
            if runs == 1:
                # Another caller, while the job runs.
                jobs.set_time("schedules", clock.now())
            else:
                loop.call_soon_threadsafe(is_over.set)
            jobs.set_time("schedules", clock.now() + int(HOUR * SECOND) if runs == 1 else None)

        async def look_async() -> None:
            look()

        jobs.at("schedules", look_async if is_async else look)
        jobs.set_time("schedules", clock.now())
        async with running(jobs):
            await is_over.wait()

    run(scenario)
    assert runs == 2


def test_a_clock_set_back_does_not_stop_jobs(clock: MachineClock) -> None:
    """Jobs with an interval go on; an instant that is later again by the clock waits for it."""

    async def scenario() -> None:
        jobs, calls, jumps, instant = (
            JobScheduler(clock, tick_seconds=SOON),
            Calls(),
            Calls(),
            Calls(),
        )
        jobs.every("often", 0.05, calls.run)
        jobs.at("instant", instant.run)
        jobs.on_jump("catch up", jumps.run)
        with structlog.testing.capture_logs() as logs:
            async with running(jobs):
                await calls.reach(2)
                jobs.set_time("instant", clock.now() + SECOND // 2)
                clock.jumped_seconds = -HOUR
                await calls.reach(len(calls.values) + 20)
        assert [round(seconds) for (seconds,) in jumps.values] == [-HOUR]
        assert instant.values == []
        assert [line["seconds"] for line in logs if line["event"] == "clock.jumped"] == [-HOUR]

    run(scenario)


def test_a_jump_forward_runs_what_has_become_due(clock: MachineClock) -> None:
    """As after a sleep of the machine: each job once, and one call to catch up."""

    async def scenario() -> None:
        jobs, calls, jumps, instant = (
            JobScheduler(clock, tick_seconds=SOON),
            Calls(),
            Calls(),
            Calls(),
        )
        hourly = Calls()
        jobs.every("often", 0.05, calls.run)
        jobs.every("hourly", HOUR, hourly.run)
        jobs.at("instant", instant.run)
        jobs.on_jump("catch up", jumps.run)
        jobs.set_time("instant", clock.now() + int(HOUR * SECOND))
        async with running(jobs):
            await calls.reach(2)
            # A year: the times that have passed must not be counted one by one.
            clock.jumped_seconds = 365 * 24 * HOUR
            await jumps.reach(1)
            await instant.reach(1)
            await hourly.reach(2)
            await calls.reach(len(calls.values) + 5)
        assert [round(seconds) for (seconds,) in jumps.values] == [365 * 24 * HOUR]
        assert (len(instant.values), len(hourly.values)) == (1, 2)

    run(scenario)


def test_a_wrong_clock_of_this_machine_is_no_jump(clock: MachineClock) -> None:
    """The clock is set to the database's first; jobs go on, and nothing is caught up."""
    true = Clock()

    async def scenario() -> None:
        jobs = JobScheduler(clock, sync_clock=lambda: clock.set_to(true.now()), tick_seconds=SOON)
        calls, jumps, instant = Calls(), Calls(), Calls()
        jobs.every("often", 0.05, calls.run)
        jobs.at("instant", instant.run)
        jobs.on_jump("catch up", jumps.run)
        async with running(jobs):
            for seconds in (-HOUR, HOUR):
                clock.jumped_seconds = seconds
                await calls.reach(len(calls.values) + 20)
                assert abs(clock.now() - true.now()) < SECOND
                jobs.set_time("instant", clock.now() + SECOND // 10)
                await instant.reach(len(instant.values) + 1)
        assert jumps.values == []

    run(scenario)


def test_a_correction_of_the_agents_clock_alone_is_a_jump(clock: MachineClock) -> None:
    """A worker sets it to the database's now and then: instants may have become due."""

    async def scenario() -> None:
        jobs, jumps, instant = JobScheduler(clock, tick_seconds=SOON), Calls(), Calls()
        jobs.at("instant", instant.run)
        jobs.on_jump("catch up", jumps.run)
        jobs.set_time("instant", clock.now() + int(HOUR * SECOND))
        async with running(jobs):
            await asyncio.sleep(0)
            clock.set_to(clock.now() + int(2 * HOUR * SECOND))
            await jumps.reach(1)
            await instant.reach(1)
        assert [round(seconds) for (seconds,) in jumps.values] == [2 * HOUR]

    run(scenario)


def test_small_corrections_are_no_jumps() -> None:
    """A time server's corrections add up to more than a jump, and are none."""
    clock = MachineClock()
    jumps = ClockJumps(clock)
    for _ in range(10):
        clock.jumped_seconds += 1.0
        jump = jumps.measure()
        assert not jump.has_moved_machine
        assert not jump.has_moved_clock
        jumps.accept(jump)
    clock.jumped_seconds -= 3.0
    assert jumps.measure().has_moved_machine
    assert jumps.measure().has_moved_clock


def test_a_process_that_was_stopped_between_two_reads_sees_no_jump() -> None:
    """The clocks are read again if the reading took long."""

    class StoppedOnce(MachineClock):
        behind = 0.0

        def now(self) -> int:
            instant = super().now()
            if self.jumped_seconds == 0:
                # Stopped for an hour after the first clock was read: both go on.
                self.jumped_seconds = self.behind = HOUR
            return instant

        def monotonic(self) -> float:
            return super().monotonic() + self.behind

    clock = StoppedOnce()
    clock.jumped_seconds = 1e-6
    jumps = ClockJumps(clock)
    clock.jumped_seconds = 0.0
    jump = jumps.measure()
    assert (jump.has_moved_machine, jump.has_moved_clock) == (False, False)


def test_the_safety_net_follows_no_wall_clock(clock: MachineClock) -> None:
    """It runs after its interval, not at the start, and again whatever the clocks show."""

    async def scenario() -> None:
        jobs, net = JobScheduler(clock, tick_seconds=0.01), Calls()
        jobs.safety_net("net", net.run, seconds=0.1)
        async with running(jobs):
            began = time.monotonic()
            for hours in (-1, 5, -9):
                clock.jumped_seconds = hours * HOUR
                await net.reach(len(net.values) + 1)
        assert net.at[0] - began > 0.08

    run(scenario)


def test_jobs_run_outside_the_context_of_their_caller(clock: MachineClock) -> None:
    """A step's code may set a job's instant; the job must not count as the step's."""
    caller: ContextVar[str] = ContextVar("caller", default="none")

    async def scenario() -> None:
        jobs, calls, seen = JobScheduler(clock), Calls(), []
        jobs.at("instant", calls.run)

        async def look() -> None:
            seen.append(caller.get())
            await calls.run()

        jobs.at("looking", look)
        async with running(jobs):
            caller.set("a step")
            jobs.set_time("looking", clock.now())
            await calls.reach(1)
        assert seen == ["none"]

    run(scenario)


def test_stop_cancels_jobs_and_waits_for_threads(clock: MachineClock) -> None:
    """No job starts afterwards; a function in a thread may end, but cannot block the end."""
    order: list[str] = []
    has_begun, may_end = threading.Event(), threading.Event()

    def in_thread() -> None:
        has_begun.set()
        may_end.wait(PATIENCE_SECONDS)
        order.append("thread ended")

    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            order.append("cancelled")
            may_end.set()

    async def scenario() -> None:
        jobs = JobScheduler(clock)
        jobs.every("endless", SOON, endless)
        jobs.every("in a thread", SOON, in_thread)
        jobs.at("later", endless)
        jobs.start()
        await asyncio.to_thread(has_begun.wait, PATIENCE_SECONDS)
        await jobs.stop()
        order.append("stopped")
        jobs.set_time("later", clock.now())
        await asyncio.sleep(3 * SOON)

    run(scenario)
    assert order == ["cancelled", "thread ended", "stopped"]


def test_a_hanging_function_does_not_block_the_end(
    clock: MachineClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scheduler gives up after a while, and its thread does not keep the process."""
    monkeypatch.setattr(job_scheduler, "STOP_SECONDS", 0.05)
    has_begun, may_end = threading.Event(), threading.Event()
    threads: list[threading.Thread] = []

    def hang() -> None:
        threads.append(threading.current_thread())
        has_begun.set()
        may_end.wait(PATIENCE_SECONDS)

    async def scenario() -> None:
        jobs = JobScheduler(clock)
        jobs.every("hanging", SOON, hang)
        jobs.start()
        await asyncio.to_thread(has_begun.wait, PATIENCE_SECONDS)
        with structlog.testing.capture_logs() as logs:
            await jobs.stop()
        assert [line["event"] for line in logs] == ["jobs.not_finished"]

    try:
        run(scenario)
    finally:
        may_end.set()
    assert threads[0].daemon


def test_two_jobs_of_one_name_are_refused(clock: MachineClock) -> None:
    """Setting the time of one would set that of the other."""
    jobs = JobScheduler(clock)
    jobs.at("twice", print)
    with pytest.raises(ValueError, match="twice"):
        jobs.every("twice", 1, print)
