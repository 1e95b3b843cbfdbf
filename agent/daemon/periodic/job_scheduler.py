"""Runs the daemon's periodic jobs: APScheduler drives them, the database decides what is due.

A job is an async function, or a function that runs in a thread. One run of a job is in progress at a
time. A failure is logged, and the job runs again at its next time.

APScheduler's timers follow this machine's clock: set back by an hour, a job with an interval would
not run for an hour. So a watcher on the monotonic clock sets every timer again after a jump. The
instants of jobs are those of the injected clock, which may be the database's. What must hold whatever
the clocks do is a safety net: the watcher itself starts it.
"""

import asyncio
import contextlib
import contextvars
import inspect
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

import structlog
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.base import BaseTrigger
from apscheduler.triggers.date import DateTrigger

from agent.core.clock import SECOND, Clock
from agent.core.thread_bridge import UnboundedThreads
from agent.daemon.periodic.clock_jumps import ClockJump, ClockJumps
from agent.store.db.database import StoreError

log = structlog.get_logger(__name__)

Result = TypeVar("Result")
JobFunction = Callable[..., Awaitable[object] | object]

STOP_SECONDS: Final = 5.0
"""How long functions in threads may go on when the scheduler stops; the process ends without them."""
_SYNC_CLOCK_SECONDS: Final = 5.0
_LONGEST_DELAY_SECONDS: Final = 86_400.0
"""A timer that is set further ahead is set again when it ends."""


class JobScheduler:
    """The periodic jobs of one daemon; add them before `start`."""

    def __init__(
        self,
        clock: Clock,
        *,
        sync_clock: Callable[[], None] | None = None,
        tick_seconds: float = 1.0,
    ) -> None:
        """`sync_clock` sets the clock to the database's; it runs in a thread after a jump."""
        self._clock = clock
        self._sync_clock = sync_clock
        self._tick_seconds = tick_seconds
        self._jobs: dict[str, _Job] = {}
        self._net: list[_Job] = []
        self._on_jump: list[_Job] = []
        self._threads = UnboundedThreads("job")
        self._in_threads: set[asyncio.Future[Any]] = set()
        self._scheduler: Any = None
        self._watcher: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_thread = 0
        self._context = contextvars.Context()

    def every(self, name: str, seconds: float, function: JobFunction) -> None:
        """Run a function at the start and then with this interval; a run that takes longer skips some."""
        self._add(_Job(name, function, self, interval_seconds=seconds))

    def at(self, name: str, function: JobFunction) -> None:
        """Run a function at the instants that `set_time` gives."""
        self._add(_Job(name, function, self, is_repeated=True))

    def set_interval(self, name: str, seconds: float) -> None:
        """Change the interval of a job of `every`; it runs once soon."""
        job = self._jobs[name]
        if job.interval_seconds == seconds:
            return
        job.interval_seconds = seconds
        if self._scheduler is not None:
            timer = self._scheduler.get_job(name)
            timer.modify(trigger=_Interval(seconds), next_run_time=datetime.now(UTC))

    def safety_net(self, name: str, function: JobFunction, seconds: float = 60.0) -> None:
        """Run a function with this interval by the monotonic clock, whatever the other clocks do."""
        job = self._add(_Job(name, function, self, interval_seconds=seconds))
        self._net.append(job)

    def on_jump(self, name: str, function: JobFunction) -> None:
        """Call a function with the seconds by which the clock jumped, once per jump."""
        self._on_jump.append(self._add(_Job(name, function, self, is_repeated=True)))

    def set_time(self, name: str, instant_us: int | None) -> None:
        """Set when a job of `at` runs next; None: not until it is set again. Any thread may call this.

        A past instant runs it at once. Of the instants that are set while the job runs, the earliest
        counts: the job's own answer must not hide a time that another caller has set meanwhile.
        """
        job = self._jobs[name]
        if self._loop is None:
            job.instant_us = instant_us
        elif threading.get_ident() == self._loop_thread:
            self._set_time(job, instant_us)
        else:
            with contextlib.suppress(RuntimeError):  # the loop has been closed: nothing runs
                self._loop.call_soon_threadsafe(self._set_time, job, instant_us)

    def start(self) -> None:
        """Start the jobs on the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._scheduler = AsyncIOScheduler(
            event_loop=self._loop,
            timezone=UTC,
            job_defaults={"misfire_grace_time": None, "coalesce": True, "max_instances": 1},
        )
        # Timers keep the context of the code that sets them: not that of a step, whose name the
        # watchdog would report, and whose code may not cancel the engine's tasks.
        self._context.run(self._start)

    async def stop(self) -> None:
        """Start no job any more, cancel async ones, and wait a little for functions in threads."""
        if self._scheduler is None:
            return
        self._scheduler.shutdown(wait=False)
        self._scheduler = None
        tasks = [job.task for job in self._jobs.values() if job.task is not None]
        tasks += [] if self._watcher is None else [self._watcher]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._in_threads:
            _, unfinished = await asyncio.wait(self._in_threads, timeout=STOP_SECONDS)
            if unfinished:
                log.warning("jobs.not_finished", count=len(unfinished))

    @property
    def is_running(self) -> bool:
        """Whether jobs may start."""
        return self._scheduler is not None

    async def in_thread(self, function: Callable[..., Result], *args: Any) -> Result:
        """Run a function in a thread; `stop` waits for it although the caller is cancelled."""
        future = self._threads.start(lambda: function(*args))
        self._in_threads.add(future)
        future.add_done_callback(self._forget)
        return await asyncio.shield(future)

    def _forget(self, future: "asyncio.Future[Any]") -> None:
        self._in_threads.discard(future)
        if not future.cancelled():
            # The caller may be gone: without this the loop logs the exception as never retrieved.
            future.exception()

    def _add(self, job: "_Job") -> "_Job":
        if job.name in self._jobs:
            raise ValueError(f"there are two jobs {job.name!r}")
        self._jobs[job.name] = job
        return job

    def _start(self) -> None:
        assert self._loop is not None
        # Before the first timer: no jump since then may be missed.
        jumps = ClockJumps(self._clock)
        self._scheduler.start()
        for job in self._jobs.values():
            if job in self._net:
                job.due_seconds = self._clock.monotonic() + (job.interval_seconds or 0.0)
            elif job.interval_seconds is not None:
                self._scheduler.add_job(
                    self._run_periodic,
                    _Interval(job.interval_seconds),
                    args=[job],
                    id=job.name,
                    next_run_time=datetime.now(UTC),
                )
            else:
                self._set_timer(job)
        self._watcher = self._loop.create_task(self._watch(jumps), name="clock watcher")

    def _set_time(self, job: "_Job", instant_us: int | None) -> None:
        if job.task is None or job.instant_us is None:
            job.instant_us = instant_us
        elif instant_us is not None:
            job.instant_us = min(job.instant_us, instant_us)
        assert self._loop is not None
        self._loop.call_soon(self._set_timer, job, context=self._context)

    def _set_timer(self, job: "_Job") -> None:
        if self._scheduler is None:
            return
        if job.instant_us is None:
            if self._scheduler.get_job(job.name) is not None:
                self._scheduler.remove_job(job.name)
            return
        seconds = (job.instant_us - self._clock.now()) / SECOND
        delay = timedelta(seconds=min(max(0.0, seconds), _LONGEST_DELAY_SECONDS))
        self._scheduler.add_job(
            self._run_if_due,
            DateTrigger(datetime.now(UTC) + delay, UTC),
            args=[job],
            id=job.name,
            replace_existing=True,
        )

    async def _run_periodic(self, job: "_Job") -> None:
        # Only starts it. APScheduler drops a run at an instant while the last one is in progress;
        # a job keeps account of its runs itself.
        job.start()

    async def _run_if_due(self, job: "_Job") -> None:
        if job.instant_us is None:
            return
        if self._clock.now() < job.instant_us:
            assert self._loop is not None
            self._loop.call_soon(self._set_timer, job, context=self._context)
            return
        job.instant_us = None
        job.start()

    async def _watch(self, jumps: ClockJumps) -> None:
        """Start the safety nets and notice jumps, by the monotonic clock."""
        while True:
            await asyncio.sleep(self._tick_seconds)
            now = self._clock.monotonic()
            for job in self._net:
                if now >= job.due_seconds:
                    job.due_seconds = now + (job.interval_seconds or 0.0)
                    job.start()
            jump = jumps.measure()
            if jump.has_moved_machine or jump.has_moved_clock:
                await self._handle(jump, jumps)
            else:
                jumps.accept(jump)

    async def _handle(self, jump: ClockJump, jumps: ClockJumps) -> None:
        self._set_timers()
        if jump.has_moved_machine and self._sync_clock is not None:
            # The database's clock decides. Where only this machine's clock was set wrong, nothing
            # has become due; without this, the correction would look like a second jump.
            try:
                async with asyncio.timeout(_SYNC_CLOCK_SECONDS):
                    await self.in_thread(self._sync_clock)
            except Exception as error:
                log.warning("clock.not_compared", error=str(error))
            jump = jumps.measure()
            self._set_timers()
        jumps.accept(jump)
        if not jump.has_moved_clock:
            log.warning("machine.clock_jumped", seconds=round(jump.machine_seconds, 1))
            return
        log.warning("clock.jumped", seconds=round(jump.clock_seconds, 1))
        for job in self._on_jump:
            job.start(jump.clock_seconds)

    def _set_timers(self) -> None:
        """Set every timer again, by what the clocks show now."""
        now = datetime.now(UTC)
        for job in self._jobs.values():
            if job.interval_seconds is None:
                self._set_timer(job)
            elif (timer := self._scheduler.get_job(job.name)) is not None:
                latest = now + timedelta(seconds=job.interval_seconds)
                timer.modify(next_run_time=min(timer.next_run_time, latest))


@dataclass(eq=False)
class _Job:
    """A function that runs once at a time."""

    name: str
    function: JobFunction
    scheduler: JobScheduler
    interval_seconds: float | None = None
    is_repeated: bool = False
    """Whether a start during a run is followed by another run."""
    instant_us: int | None = None
    """When it runs next, if `set_time` decides that."""
    due_seconds: float = 0.0
    """When it runs next by the monotonic clock, if it is a safety net."""
    task: "asyncio.Task[None] | None" = None
    waiting: list[tuple[Any, ...]] = field(default_factory=list)

    def start(self, *args: Any) -> None:
        """Start a run, or remember to do so after the one in progress."""
        if not self.scheduler.is_running:
            return
        if self.task is None:
            self.task = asyncio.get_running_loop().create_task(self._run(args), name=self.name)
        elif self.is_repeated:
            self.waiting = [args]

    async def _run(self, args: tuple[Any, ...]) -> None:
        try:
            await self._call(args)
            while self.waiting:
                await self._call(self.waiting.pop())
        finally:
            self.task = None

    async def _call(self, args: tuple[Any, ...]) -> None:
        try:
            if inspect.iscoroutinefunction(self.function):
                await self.function(*args)
            else:
                await self.scheduler.in_thread(self.function, *args)
        except BaseException as error:
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and task and task.cancelling():
                raise
            # The next run tries again: a lost database may come back.
            is_expected = isinstance(error, (StoreError, OSError))
            log.warning(
                "job.failed",
                job=self.name,
                error=str(error),
                exc_info=None if is_expected else error,
            )


class _Interval(BaseTrigger):  # type: ignore[misc]  # APScheduler has no types
    """An interval that leaves out the times that have passed.

    APScheduler's own would count them all, on the event loop: 15 million after a jump of a year.
    """

    def __init__(self, seconds: float) -> None:
        self._interval = timedelta(seconds=seconds)

    def get_next_fire_time(self, previous: datetime | None, now: datetime) -> datetime:
        following = now if previous is None else previous + self._interval
        return following if following > now else now + self._interval
