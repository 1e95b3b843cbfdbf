"""Runs the triggers of a daemon: schedules as one job, watchers in a thread of their own.

Nothing fires before the recovery of triggers, which follows the first sync of the workflow files: what
was edited or removed while the daemon was down is known by then. The jobs' times are hints that follow
the database: after each pass, each sync and each commit of another process they are read again.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError
from typing import Any, Final

import structlog

from agent import bootstrap, recovery
from agent.config.settings import Settings
from agent.core.clock import SECOND
from agent.daemon.periodic.job_scheduler import JobScheduler
from agent.daemon.workflow_sync import WorkflowChange
from agent.steps.attempt.services import Limits
from agent.store.db.database import Database, StoreError
from agent.tasks.rules.firings.trigger_update import FireResult, TriggerUpdate
from agent.tasks.worker.worker import Worker
from agent.triggers.schedules.passes import SchedulePass
from agent.triggers.schedules.schedule_runner import run_schedules
from agent.triggers.watch_listeners import WatchListeners
from agent.triggers.watch_runner import WatchRunner

log = structlog.get_logger(__name__)

SCHEDULES: Final = "schedules"
WATCHERS: Final = "watchers"
_MOST_TRIES: Final = 20
_REFRESH_SECONDS: Final = 0.5
"""How soon the times are read again after another process has committed something."""
_RETRY_US: Final = SECOND
"""How soon schedules are tried again after the database could not be read."""


class TriggerJobs:
    """The triggers of one daemon, from the first sync of its workflows on."""

    def __init__(
        self, settings: Settings, database: Database, worker: Worker, jobs: JobScheduler
    ) -> None:
        self._settings = settings
        self._database = database
        self._worker = worker
        self._jobs = jobs
        self._loop = asyncio.get_running_loop()
        self._schedules = SchedulePass(database, database.clock, settings.budget)
        self._watchers = WatchThread(
            settings, database, self._fire_from_thread, self._on_poll, lambda: worker.worker_id
        )
        self._is_ready = False
        self._is_refreshing = False
        self._firing = asyncio.Lock()
        self._reading = asyncio.Lock()
        worker.services.start_missed = self._start_missed
        jobs.at(SCHEDULES, self._run_schedules)
        jobs.at(WATCHERS, self._run_watchers)
        jobs.safety_net("trigger net", self._check_all)
        jobs.on_jump("trigger jump", self._on_jump)

    async def on_first_sync(self) -> None:
        """Recover the triggers, then let them fire."""
        if not self._is_ready:
            await self._jobs.in_thread(
                recovery.recover_triggers,
                self._database,
                self._database.clock,
                self._settings.budget,
                self._schedules,
            )
            self._is_ready = True
            self._watchers.start()
            self._worker.commit_listeners.append(self._on_commit)
        await self._refresh()

    def apply(self, settings: Settings) -> None:
        """Fire and poll by changed settings from now on."""
        self._settings = settings
        self._schedules.budget = settings.budget
        self._watchers.apply(bootstrap.limits_of(settings))

    async def on_sync(self, _changes: list[WorkflowChange]) -> None:
        """Follow the definitions that a sync has changed."""
        await self._refresh()

    async def stop(self) -> None:
        """Stop polling; polls in flight are abandoned, and recorded by the next start's polls."""
        await self._jobs.in_thread(self._watchers.stop)
        self._schedules.close()

    async def _run_schedules(self) -> None:
        if not self._is_ready:
            return
        async with self._firing:
            try:
                run = await run_schedules(self._schedules, self._worker.fire)
            except StoreError:
                # Without this, due triggers would wait for the safety net.
                again = self._database.clock.now() + _RETRY_US
                self._jobs.set_time(SCHEDULES, again)
                raise
        if run.fates:
            log.info("schedules.fired", **run.fates)
        self._jobs.set_time(SCHEDULES, run.next_time)

    async def _run_watchers(self) -> None:
        if self._is_ready:
            await self._jobs.in_thread(self._watchers.start_due)
            await self._set_watch_time()

    async def _start_missed(self, trigger_id: str, nominals: list[int]) -> list[str]:
        """Start missed instants of a schedule that a person chose; called by a step."""
        for _ in range(_MOST_TRIES):
            plan = await self._jobs.in_thread(self._schedules.plan_runs, trigger_id, nominals)
            if plan is None:
                break
            result = await self._worker.fire(plan)
            if result.status == "applied":
                await self._set_schedule_time()
                return sorted(set(result.started.values()))
        return []

    async def _check_all(self) -> None:
        """Find due triggers after a lost notification, or a clock that ran ahead."""
        if not self._is_ready:
            return
        for plan in await self._jobs.in_thread(self._schedules.plan_corrections):
            await self._worker.fire(plan)
        if not self._firing.locked():
            await self._run_schedules()
        await self._jobs.in_thread(self._watchers.listen)
        await self._set_watch_time()

    async def _on_jump(self, _seconds: float) -> None:
        # A machine that slept is a daemon that was down.
        await self._check_all()

    async def _refresh(self) -> None:
        if self._is_ready:
            # One at a time: an older answer must not replace a newer one.
            async with self._reading:
                schedules, watchers = await self._jobs.in_thread(self._read_times)
                self._jobs.set_time(SCHEDULES, schedules)
                self._jobs.set_time(WATCHERS, watchers)

    def _read_times(self) -> tuple[int | None, int | None]:
        """Return when the next schedule and the next watcher are due; follows the listeners too."""
        self._watchers.listen()
        return self._schedules.next_time(), self._watchers.next_time()

    async def _set_schedule_time(self) -> None:
        self._jobs.set_time(SCHEDULES, await self._jobs.in_thread(self._schedules.next_time))

    async def _set_watch_time(self) -> None:
        self._jobs.set_time(WATCHERS, await self._jobs.in_thread(self._watchers.next_time))

    def _on_commit(self, events: list[tuple[Any, ...]]) -> None:
        """Read the times again soon after another process has committed, which passes no events."""
        if not events and not self._is_refreshing:
            self._is_refreshing = True
            self._loop.call_later(_REFRESH_SECONDS, self._start_refresh)

    def _start_refresh(self) -> None:
        self._is_refreshing = False
        if self._jobs.is_running:
            self._refreshing = self._loop.create_task(self._refresh_quietly())

    async def _refresh_quietly(self) -> None:
        try:
            await self._refresh()
        except Exception as error:
            # The safety net reads the times again.
            log.warning("triggers.not_refreshed", error=str(error))

    def _on_poll(self) -> None:
        """Start queued work after the end of a poll; called in the watchers' thread."""
        self._jobs.set_time(WATCHERS, self._database.clock.now())

    async def _fire_from_thread(self, update: TriggerUpdate) -> FireResult:
        """Let the worker apply a plan; awaited in the watchers' event loop."""
        return await asyncio.wrap_future(
            asyncio.run_coroutine_threadsafe(self._worker.fire(update), self._loop)
        )


class WatchThread:
    """The event loop in which watchers poll; its methods are called from other threads."""

    def __init__(
        self,
        settings: Settings,
        database: Database,
        fire: Callable[[TriggerUpdate], Any],
        on_poll: Callable[[], None],
        worker_id: Callable[[], str] = str,
    ) -> None:
        self._on_poll = on_poll
        self._runner = WatchRunner(
            database,
            database.clock,
            bootstrap.limits_of(settings),
            fire,
            on_done=on_poll,
            worker_id=worker_id,
        )
        self._listeners = WatchListeners(self._runner)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="watchers", daemon=True)
        self._has_started = threading.Event()
        self._lock = threading.Lock()
        self._is_stopped = False

    def start(self) -> None:
        """Start the thread, unless the daemon stops already."""
        with self._lock:
            if not self._is_stopped:
                self._thread.start()
                self._has_started.wait()

    def apply(self, limits: Limits) -> None:
        """Poll within changed limits; polls in flight keep theirs."""
        self._runner.limits = limits

    def start_due(self) -> None:
        """Start polls of due watchers."""
        self._call(self._runner.start_due)

    def listen(self) -> None:
        """Listen to the sources that tell when to poll early."""
        self._call(self._listeners.refresh)

    def next_time(self) -> int | None:
        """Return when the next watcher is due."""
        return self._runner.next_time()

    def stop(self) -> None:
        """Cancel running polls and end the thread."""
        with self._lock:
            self._is_stopped = True
        if self._loop is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(timeout=5.0)

    def _call(self, work: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Run a coroutine function in the loop; `stop` cancels it."""
        with self._lock:
            # A coroutine that is passed to a stopped loop never ends, and its caller would wait for ever.
            if self._is_stopped or self._loop is None:
                return
            future = asyncio.run_coroutine_threadsafe(work(), self._loop)
        with contextlib.suppress(CancelledError):
            future.result()

    def _run(self) -> None:
        self._loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self._loop)
        self._has_started.set()
        try:
            self._loop.run_forever()
        finally:
            pending = asyncio.all_tasks(self._loop)
            for task in pending:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*pending, return_exceptions=True))
            self._loop.run_until_complete(self._runner.aclose())
            self._loop.close()
