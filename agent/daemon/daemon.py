"""A running agent: the worker, and beside it the HTTP API, the channels and the periodic jobs.

A daemon starts with the recovery pass, before any loop. The first SIGTERM or SIGINT stops it
gracefully, the second at once; a timer ends it shortly after `engine.shutdown_seconds` in any case.
A closed terminal (SIGHUP) stops it gracefully too, unless it was started with `nohup`.
"""

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final

import structlog

from agent import bootstrap
from agent.approvals import expiry
from agent.config.settings import Settings
from agent.core import audit, file_descriptors
from agent.daemon import event_logging, jobs, startup_retry
from agent.daemon.job_scheduler import JobScheduler
from agent.daemon.prune_job import PruneJob
from agent.daemon.trigger_jobs import TriggerJobs
from agent.steps.process import secret_command
from agent.store.channels.cursors import LogPosition
from agent.store.db.database import Database
from agent.tasks.read_models.event_tail import EventTail
from agent.tasks.worker import watchdog

if TYPE_CHECKING:
    from agent.channels.supervisor import Channels
    from agent.server.server_thread import Server
    from agent.tasks.worker.worker import Worker

log = structlog.get_logger(__name__)

_FORCED_EXIT_SECONDS: Final = 10.0
"""How long after the configured shutdown time the process ends itself."""

OnReady = Callable[[str | None], Coroutine[Any, Any, None]]


async def serve(
    settings: Settings,
    database: Database,
    *,
    on_ready: OnReady | None = None,
    has_api: bool = True,
    has_channels: bool = True,
    has_pruning: bool = True,
) -> None:
    """Run tasks until a signal stops the process; the caller holds the lock.

    `on_ready` gets the address of the HTTP API, or None without one. A signal cancels it.
    """
    file_descriptors.raise_limit()
    audit.configure(settings.home, is_logged=True)
    tail = EventTail(database)
    # Before the recovery pass: listeners and metrics see its events too.
    first_event = await startup_retry.with_retries(tail.open, is_idempotent=True)
    await startup_retry.recover(database)
    worker = bootstrap.build_worker(settings, database)
    daemon = Daemon(
        settings,
        database,
        worker,
        tail,
        _open_server(settings, database, worker, first_event) if has_api else None,
        _open_channels(settings, database) if has_channels else None,
    )
    await daemon.run(on_ready, has_pruning=has_pruning)


class Daemon:
    """The parts of one daemon, started and stopped in order."""

    def __init__(
        self,
        settings: Settings,
        database: Database,
        worker: "Worker",
        tail: EventTail,
        server: "Server | None",
        channels: "Channels | None",
    ) -> None:
        self._settings = settings
        self._database = database
        self._worker = worker
        self._tail = tail
        self._server = server
        self._channels = channels
        self._loop = asyncio.get_running_loop()
        self._is_stopping = False
        self._greeting: asyncio.Task[None] | None = None
        self._jobs = JobScheduler(database.clock, sync_clock=database.set_clock)
        self._prune_job: PruneJob | None = None
        self._triggers: TriggerJobs | None = None

    async def run(self, on_ready: OnReady | None, *, has_pruning: bool = True) -> None:
        """Run tasks until a signal stops the worker, then stop the rest."""
        self._handle_signals()
        self._start_listeners()
        if on_ready is not None:
            # Before the jobs: it reads the workflow files too, in this thread.
            url = None if self._server is None else self._server.url
            self._greeting = asyncio.create_task(on_ready(url))
        if has_pruning and self._settings.prune.is_on:
            self._add_pruning()
        self._start_jobs()
        try:
            if self._greeting is not None:
                await asyncio.wait({self._greeting})
                if not self._greeting.cancelled():
                    self._greeting.result()
            bootstrap.collect_garbage_seldom()
            with watchdog.watching(self._worker.blocks):
                await self._worker.run()
        finally:
            await self._close()
        log.info("stopped")

    def _handle_signals(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._stop, number)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            self._loop.add_signal_handler(signal.SIGHUP, self._hang_up)

    def _start_listeners(self) -> None:
        """Subscribe the log and the channels to committed events."""
        if self._settings.log.level in ("debug", "info"):
            self._tail.subscribe(event_logging.log_events, event_logging.EVENT_TYPES)
        if self._channels is not None:
            # This worker's commits wake the channels at once; other processes' come by the tail.
            self._worker.commit_listeners.append(self._channels.wake_for)
            self._tail.subscribe(self._channels.wake_for, self._channels.event_types)
            self._channels.start()
        self._worker.commit_listeners.append(self._tail.wake)
        self._tail.start()

    def _start_jobs(self) -> None:
        settings, database = self._settings, self._database
        triggers = self._triggers = TriggerJobs(settings, database, self._worker, self._jobs)
        sync = jobs.WorkflowSyncJob(
            settings,
            database,
            self._server,
            on_first_sync=triggers.on_first_sync,
            on_sync=triggers.on_sync,
            in_thread=self._jobs.in_thread,
        )
        check = expiry.ApprovalCheck(database, database.clock)
        self._jobs.every("workflow sync", jobs.WORKFLOW_SYNC_SECONDS, sync.run)
        self._jobs.every("approval check", settings.approvals.loop_seconds, check.run)
        self._jobs.start()

    def _add_pruning(self) -> None:
        name = "prune"
        self._prune_job = PruneJob(
            self._settings.prune, self._database, lambda instant: self._jobs.set_time(name, instant)
        )
        self._jobs.at(name, self._prune_job.run)
        self._jobs.on_jump("prune after a jump", self._prune_job.handle_jump)
        self._prune_job.start()

    def _stop(self, number: signal.Signals) -> None:
        """Stop gracefully at the first signal, and at once at the second."""
        if self._is_stopping:
            log.warning("stopped at once", signal=number.name)
            _exit_now(128 + number)
        self._is_stopping = True
        log.info("stopping", signal=number.name)
        _exit_after(self._settings.engine.shutdown_seconds + _FORCED_EXIT_SECONDS)
        if self._server is not None:
            self._server.stop()
        if self._channels is not None:
            self._channels.stop()
        if self._prune_job is not None:
            self._prune_job.stop()
        if self._greeting is not None:
            self._greeting.cancel()
        self._worker.stop()

    def _hang_up(self) -> None:
        """Stop gracefully once: a closed terminal may send SIGHUP twice."""
        self._loop.remove_signal_handler(signal.SIGHUP)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        if not self._is_stopping:
            self._stop(signal.SIGHUP)

    async def _close(self) -> None:
        if self._greeting is not None:
            self._greeting.cancel()
        if self._prune_job is not None:
            self._prune_job.stop()
        if self._triggers is not None:
            await self._triggers.stop()
        await self._jobs.stop()
        if self._server is not None:
            self._server.stop()
            await self._server.closed()
        await asyncio.to_thread(self._tail.stop)
        if self._channels is not None:
            self._channels.stop()
            await self._channels.closed()


def _open_server(
    settings: Settings, database: Database, worker: "Worker", first_event: LogPosition
) -> "Server | None":
    """Return the HTTP API, bound but not yet answering; tasks run without it if the port is taken."""
    if not settings.server.enabled:
        return None
    from agent.server.server_thread import Server

    try:
        return Server(settings, database, worker, first_event)
    except OSError as error:
        log.warning(
            "the HTTP API is not offered",
            host=settings.server.host,
            port=settings.server.port,
            error=error.strerror or str(error),
        )
        return None


def _open_channels(settings: Settings, database: Database) -> "Channels | None":
    """Return the channels that the configuration turns on, not yet running; None without any."""
    if not settings.channels.turned_on:
        return None
    # Imported only where there are channels: the HTTP client takes a while to load.
    from agent.channels.supervisor import Channels

    return Channels(settings, database)


def _exit_after(seconds: float) -> None:
    """End the process after this time even if something hangs; its steps are rescued later."""
    timer = threading.Timer(seconds, _exit_now, args=(1,))
    timer.daemon = True
    timer.start()


def _exit_now(code: int) -> None:
    """End this process without its exit handlers; commands that read secrets end with it."""
    secret_command.end_commands()
    os._exit(code)
