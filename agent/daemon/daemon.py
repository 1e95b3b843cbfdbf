"""A running agent: the worker, and beside it the HTTP API, the channels and the periodic jobs.

A daemon starts with the recovery pass, before any loop. The first SIGTERM or SIGINT stops it
gracefully, the second at once; a timer ends it shortly after `engine.shutdown_seconds` in any case.
SIGHUP reloads the settings; where it comes from a terminal that was closed, it stops the daemon
gracefully, unless that was started with `nohup`.
"""

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final

import structlog

from agent import bootstrap, recovery
from agent.approvals import expiry
from agent.config.loader import Configuration
from agent.config.settings import Settings
from agent.core.clock import to_iso
from agent.core.files import file_descriptors
from agent.core.logs import audit, logging
from agent.daemon import event_logging, startup_retry
from agent.daemon.channel_slot import ChannelSlot
from agent.daemon.controlling_terminal import ControllingTerminal
from agent.daemon.instance_file import InstanceFile
from agent.daemon.periodic import workflow_sync_job
from agent.daemon.periodic.job_scheduler import JobScheduler
from agent.daemon.periodic.trigger_jobs import TriggerJobs
from agent.daemon.periodic.upkeep_jobs import UpkeepJobs
from agent.daemon.service_watch import ServiceWatch
from agent.daemon.settings_reload import SettingsReload
from agent.daemon.task_spans import TaskSpans
from agent.steps.process import secret_command
from agent.store.channels.cursors import LogPosition
from agent.store.db.database import Database
from agent.tasks.read_models.event_tail import EventTail
from agent.tasks.worker import watchdog

if TYPE_CHECKING:
    from agent.server.server_thread import Server
    from agent.tasks.worker.worker import Worker

log = structlog.get_logger(__name__)

_FORCED_EXIT_SECONDS: Final = 10.0
"""How long after the configured shutdown time the process ends itself."""

_APPROVAL_CHECK: Final = "approval check"

OnReady = Callable[[str | None], Coroutine[Any, Any, None]]


async def serve(
    settings: Settings,
    database: Database,
    *,
    configuration: Configuration | None = None,
    on_ready: OnReady | None = None,
    has_api: bool = True,
    has_channels: bool = True,
    runs_upkeep: bool = True,
) -> None:
    """Run tasks until a signal stops the process; the caller holds the lock.

    `configuration` is where the settings come from; without it they cannot be reloaded. `on_ready` gets
    the address of the HTTP API, or None without one; a signal cancels it. `runs_upkeep` is for the one
    process of a database that prunes, makes backups and watches the disk.
    """
    file_descriptors.raise_limit()
    audit.configure(settings.home, is_logged=True)
    tail = EventTail(database)
    # Before the recovery pass, so that listeners and metrics see its events too.
    first_position = await startup_retry.with_retries(tail.open, is_idempotent=True)
    await startup_retry.recover(database, bootstrap.limits_of(settings))
    worker = bootstrap.build_worker(settings, database)
    server = _open_server(settings, database, worker, first_position) if has_api else None
    url = None if server is None else server.url
    channels = None
    if has_channels:
        channels = ChannelSlot(settings, database, lambda: worker.worker_id, url)
    daemon = Daemon(settings, database, worker, tail, server, channels)
    if configuration is not None:
        daemon.enable_reload(configuration, is_described=has_api)
    await daemon.run(on_ready, runs_upkeep=runs_upkeep)


class Daemon:
    """The parts of one daemon, started and stopped in order."""

    def __init__(
        self,
        settings: Settings,
        database: Database,
        worker: "Worker",
        tail: EventTail,
        server: "Server | None",
        channels: ChannelSlot | None,
    ) -> None:
        self._settings = settings
        self._database = database
        self._worker = worker
        self._tail = tail
        self._server = server
        self._channels = channels
        self._loop = asyncio.get_running_loop()
        self._is_stopping = False
        self._is_nohup = False
        self._has_log = False
        self._log_keys: event_logging.LogKeys | None = None
        self._sends_task_spans = True
        self._service = ServiceWatch(worker, server, settings.engine.lease_seconds)
        self._ready_callback: asyncio.Task[None] | None = None
        self._jobs = JobScheduler(database.clock, sync_clock=database.set_clock)
        self._upkeep = UpkeepJobs(settings, database, worker.health, self._jobs)
        self._triggers: TriggerJobs | None = None
        self._sync: workflow_sync_job.WorkflowSyncJob | None = None
        self._terminal = ControllingTerminal()
        self._reload: SettingsReload | None = None
        self._reloading: asyncio.Task[dict[str, Any]] | None = None
        self._instance_file: InstanceFile | None = None

    def enable_reload(self, configuration: Configuration, *, is_described: bool) -> None:
        """Let signals and the HTTP API reload the settings; `is_described` writes the instance file."""
        clock = self._database.clock
        if is_described:
            started_at = to_iso(clock.now()) or ""
            self._instance_file = InstanceFile(self._settings.home, configuration, started_at)
        self._reload = SettingsReload(configuration, self._apply, self._instance_file, clock)
        if self._server is not None:
            self._server.reload = self._reload_settings

    async def run(self, on_ready: OnReady | None, *, runs_upkeep: bool = True) -> None:
        """Run tasks until a signal stops the worker, then stop the rest."""
        self._handle_signals()
        # Of the processes of one database only the daemon sends the spans of tasks: each has every end of a
        # task in its tail, and would send it once more.
        self._sends_task_spans = runs_upkeep
        self._start_listeners()
        if on_ready is not None:
            # Before the jobs, which read the workflow files too: this thread reads them first.
            url = None if self._server is None else self._server.url
            self._ready_callback = asyncio.create_task(on_ready(url))
        if runs_upkeep:
            self._upkeep.add_jobs()
        self._start_jobs()
        self._service.start()
        if self._instance_file is not None:
            self._instance_file.write(None if self._server is None else self._server.url)
        try:
            if self._ready_callback is not None:
                await asyncio.wait({self._ready_callback})
                if not self._ready_callback.cancelled():
                    self._ready_callback.result()
            bootstrap.collect_garbage_seldom()
            with watchdog.watching(self._worker.blocks):
                await self._worker.run()
        finally:
            await self._close()
        log.info("daemon.stopped")

    def _handle_signals(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._stop, number)
        self._is_nohup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        self._loop.add_signal_handler(signal.SIGHUP, self._hang_up)

    def _start_listeners(self) -> None:
        """Subscribe the log and the channels to committed events."""
        spans = self._worker.services.spans
        task_spans = None if spans is None else TaskSpans(self._database, spans)
        self._log_keys = None if task_spans is None else task_spans.log_keys
        self._subscribe_log()
        if task_spans is not None and self._sends_task_spans:
            task_spans.subscribe(self._tail)
        if self._channels is not None:
            # This worker's commits wake the channels at once; other processes' come by the tail.
            self._worker.commit_listeners.append(self._channels.wake_for)
            self._tail.subscribe(self._channels.wake_for, self._channels.event_types)
            self._channels.start()
        self._worker.commit_listeners.append(self._tail.wake)
        self._tail.start()

    def _subscribe_log(self) -> None:
        """Log events, once the level lets them through."""
        if self._settings.log.level in ("debug", "info") and not self._has_log:
            self._has_log = True
            self._tail.subscribe(
                lambda events: event_logging.log_events(events, self._log_keys),
                event_logging.EVENT_TYPES,
            )

    def _start_jobs(self) -> None:
        settings, database = self._settings, self._database
        triggers = self._triggers = TriggerJobs(settings, database, self._worker, self._jobs)
        sync = self._sync = workflow_sync_job.WorkflowSyncJob(
            settings,
            database,
            self._server,
            on_first_sync=triggers.on_first_sync,
            on_sync=triggers.on_sync,
            in_thread=self._jobs.in_thread,
        )
        check = expiry.ApprovalCheck(database, database.clock)
        self._jobs.every("workflow sync", workflow_sync_job.WORKFLOW_SYNC_SECONDS, sync.run)
        self._jobs.every(_APPROVAL_CHECK, settings.approvals.loop_seconds, check.run)
        self._jobs.on_jump(
            "waits after a jump",
            lambda _seconds: recovery.correct_waits(database, database.clock),
        )
        self._jobs.start()

    def _stop(self, number: signal.Signals) -> None:
        """Stop gracefully at the first signal, and at once at the second."""
        if self._is_stopping:
            log.warning("daemon.stopped_at_once", signal=number.name)
            _exit_now(128 + number)
        self._is_stopping = True
        log.info("daemon.stopping", signal=number.name)
        self._service.note_stop()
        _exit_after(self._settings.engine.shutdown_seconds + _FORCED_EXIT_SECONDS)
        if self._server is not None:
            self._server.stop()
        if self._channels is not None:
            self._channels.stop()
        self._upkeep.stop()
        if self._ready_callback is not None:
            self._ready_callback.cancel()
        self._worker.stop()

    def _hang_up(self) -> None:
        """Reload the settings; after the loss of the terminal, stop gracefully once."""
        if self._terminal.is_lost():
            # It may be sent twice, by the kernel and by the shell.
            if not self._is_stopping and not self._is_nohup:
                self._stop(signal.SIGHUP)
        elif self._reload is not None and not self._is_stopping:
            self._reloading = self._loop.create_task(self._reload_settings())

    async def _reload_settings(self) -> dict[str, Any]:
        """Reload the settings, and tell the service manager."""
        assert self._reload is not None
        with self._service.reloading():
            return await self._reload.run()

    async def _apply(self, old: Settings, settings: Settings) -> None:
        """Let every part use changed settings."""
        self._settings = settings
        if old.log != settings.log:
            logging.configure(settings.log.format, settings.log.level)
            self._subscribe_log()
        bootstrap.reconfigure_worker(self._worker, old, settings)
        self._upkeep.disks.settings = settings.disk
        if self._triggers is not None:
            self._triggers.apply(settings)
        if self._sync is not None:
            self._sync.apply(settings)
        self._jobs.set_interval(_APPROVAL_CHECK, settings.approvals.loop_seconds)
        if self._server is not None:
            self._server.apply(settings, self._worker.services.limits)
        has_changed = (old.channels, old.notify) != (settings.channels, settings.notify)
        if self._channels is not None and has_changed:
            await self._channels.replace(settings)

    async def _close(self) -> None:
        """Stop every part but the worker, which has ended."""
        self._service.stop()
        if self._ready_callback is not None:
            self._ready_callback.cancel()
        self._upkeep.stop()
        if self._triggers is not None:
            await self._triggers.stop()
        await self._jobs.stop()
        if self._server is not None:
            self._server.stop()
            await self._server.closed()
        await asyncio.to_thread(self._tail.stop)
        if self._worker.services.spans is not None:
            await asyncio.to_thread(self._worker.services.spans.close)
        if self._channels is not None:
            self._channels.stop()
            await self._channels.closed()
        if self._instance_file is not None:
            self._instance_file.remove()


def _open_server(
    settings: Settings, database: Database, worker: "Worker", first_position: LogPosition
) -> "Server | None":
    """Return the HTTP API, bound but not yet answering; tasks run without it if the port is taken."""
    if not settings.server.enabled:
        return None
    from agent.mcp.http_endpoint import PATH, HttpEndpoint
    from agent.server.server_thread import Server

    try:
        return Server(settings, database, worker, first_position, {PATH: HttpEndpoint})
    except OSError as error:
        log.warning(
            "api.not_started",
            host=settings.server.host,
            port=settings.server.port,
            error=error.strerror or str(error),
        )
        return None


def _exit_after(seconds: float) -> None:
    """End the process after this time even if something hangs; its steps are rescued later."""
    timer = threading.Timer(seconds, _exit_now, args=(1,))
    timer.daemon = True
    timer.start()


def _exit_now(code: int) -> None:
    """End this process without its exit handlers; commands that read secrets end with it."""
    secret_command.end_commands()
    os._exit(code)
