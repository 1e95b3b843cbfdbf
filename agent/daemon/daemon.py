"""A running agent: the worker with what keeps it company, as a daemon or inside one command.

On SQLite one process at a time runs a database's tasks, and its file lock says that it lives; on
PostgreSQL there may be many. A daemon starts with the recovery pass, before any loop; it ends
gracefully on SIGTERM or SIGINT, at once on the second, and in any case a little after the time that
the configuration grants. A closed terminal ends it gracefully too, unless it was told to outlive it
(`nohup`).
"""

import asyncio
import contextlib
import errno
import json
import os
import signal
import threading
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

import structlog

from agent import bootstrap
from agent.approvals import expiry
from agent.config.settings import Settings
from agent.core import audit, event_loop, file_descriptors, logging
from agent.core.process_lock import Lock, LockHolder
from agent.daemon import startup_retry, workflow_sync
from agent.store.channels.cursors import Place
from agent.store.db.database import Database, StoreError
from agent.store.db.dialect import Fault
from agent.tasks.read_models.event_tail import EventTail
from agent.tasks.worker import watchdog

if TYPE_CHECKING:
    from agent.channels.supervisor import Channels
    from agent.server.server_thread import Server
    from agent.tasks.worker.worker import Worker

_LAST_PATIENCE_SECONDS = 10.0
_LOOK_SECONDS = 2.0
"""How often the workflow directory is looked at."""


_TOLD = frozenset(
    {
        "task.created",
        "task.paused",
        "task.resumed",
        "task.succeeded",
        "task.failed",
        "task.canceled",
    }
)
_ASKED = frozenset({"approval.requested", "approval.renewed", "approval.reminded"})
_WARNED = frozenset({"tool_call.unknown", "step.lost"})


class AlreadyRunningError(Exception):
    """Another process runs this database's tasks."""

    def __init__(self, holder: LockHolder | None) -> None:
        who = f" (process {holder.process_id})" if holder and holder.process_id else ""
        super().__init__(f"an agent is already running on this database{who}")


def take_lock(database: Database, role: str) -> Lock | None:
    """Take the database's lock for this process, or raise `AlreadyRunningError`."""
    lock = bootstrap.lock_of(database)
    try:
        if lock is not None and not lock.acquire(role):
            raise AlreadyRunningError(lock.holder())
    except OSError as error:
        # A file that was opened for reading only has no lock to take.
        reason = "it cannot be written" if error.errno == errno.EBADF else error.strerror
        text = f"{database.path} cannot be locked: {reason}"
        raise StoreError(Fault.READONLY, text) from None
    return lock


async def serve(
    settings: Settings,
    database: Database,
    *,
    on_ready: Callable[[str | None], Coroutine[Any, Any, None]] | None = None,
    has_api: bool = True,
    has_channels: bool = True,
) -> None:
    """Run tasks until a signal says to stop; the caller holds the lock.

    `on_ready` is given the address of the HTTP API, where there is one; a signal ends its waiting.
    """
    logger = structlog.get_logger(__name__)
    file_descriptors.raise_limit()
    audit.configure(settings.home, is_logged=True)
    tail = EventTail(database)
    # Before the recovery pass: listeners and metrics see its events too.
    began = await startup_retry.patiently(tail.open, may_be_done_twice=True)
    await startup_retry.recover(database)
    worker = bootstrap.build_worker(settings, database)
    server = _open_server(settings, database, worker, began) if has_api else None
    channels = _open_channels(settings, database) if has_channels else None
    loop = asyncio.get_running_loop()
    is_stopping = False
    greeting: asyncio.Task[None] | None = None

    def stop(number: signal.Signals) -> None:
        nonlocal is_stopping
        if is_stopping:
            logger.warning("stopped at once", signal=number.name)
            os._exit(128 + number)
        is_stopping = True
        logger.info("stopping", signal=number.name)
        _end_in_any_case(settings.engine.shutdown_seconds + _LAST_PATIENCE_SECONDS)
        if server is not None:
            server.stop()
        if channels is not None:
            channels.stop()
        if greeting is not None:
            greeting.cancel()
        worker.stop()

    def hang_up() -> None:
        # A terminal that is closed may say so twice, and is in no hurry.
        loop.remove_signal_handler(signal.SIGHUP)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        if not is_stopping:
            stop(signal.SIGHUP)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        loop.add_signal_handler(signal.SIGHUP, hang_up)
    if settings.log.level in ("debug", "info"):
        tail.subscribe(_tell, _TOLD | _ASKED | _WARNED)
    if channels is not None:
        # At once for what this worker commits; what others commit comes by the tail.
        worker.commit_listeners.append(channels.wake_for)
        tail.subscribe(channels.wake_for, channels.event_types)
        channels.start()
    worker.commit_listeners.append(tail.wake)
    tail.start()
    if on_ready is not None:
        # First: it reads the workflow files too, in this thread and before the watch does.
        greeting = asyncio.create_task(on_ready(server.url if server is not None else None))
    watching = asyncio.create_task(_watch_workflows(settings, database, server))
    asking = asyncio.create_task(
        expiry.watch(database, database.clock, settings.approvals.loop_seconds)
    )
    try:
        if greeting is not None:
            await asyncio.wait({greeting})
            if not greeting.cancelled():
                greeting.result()
        bootstrap.collect_garbage_seldom()
        with watchdog.watching(worker.blocks):
            await worker.run()
    finally:
        if greeting is not None:
            greeting.cancel()
        for beside in (watching, asking):
            beside.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await beside
        if server is not None:
            server.stop()
            await server.closed()
        await asyncio.to_thread(tail.stop)
        if channels is not None:
            channels.stop()
            await channels.closed()
    logger.info("stopped")


class InsideCommand:
    """A worker in a thread of its own, for a command that runs its task by itself."""

    def __init__(self, settings: Settings, database: Database) -> None:
        # What it says belongs beside the command's answer, and only if something is wrong.
        logging.configure(settings.log.format, "warning")
        self._database = database
        self._worker = bootstrap.build_worker(settings, database)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._has_started = threading.Event()
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="worker", daemon=True)

    def __enter__(self) -> "InsideCommand":
        self._thread.start()
        self._has_started.wait()
        return self

    def __exit__(self, *_: object) -> None:
        if self._loop is not None and self._thread.is_alive():
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._worker.stop)
        self._thread.join()

    def check(self) -> None:
        """Raise what ended the worker before its time, if something did."""
        if self.error is not None:
            raise self.error

    def _run(self) -> None:
        try:
            event_loop.run(self._serve())
        except BaseException as error:
            self.error = error
        finally:
            self._has_started.set()

    async def _serve(self) -> None:
        await startup_retry.recover(self._database)
        self._loop = asyncio.get_running_loop()
        self._has_started.set()
        with watchdog.watching(self._worker.blocks):
            await self._worker.run()


def _tell(events: list[tuple[Any, ...]]) -> None:
    """Log what matters of committed events: tasks' beginnings and ends, and what went wrong."""
    logger = structlog.get_logger("agent.tasks")
    for task_id, _, event, _, attempt, _, data in events:
        if event in _WARNED:
            tried = {} if attempt is None else {"attempt": attempt}
            logger.warning(event, task=task_id, **tried, data=_loaded(data))
        elif event in _TOLD:
            logger.info(event, task=task_id)
        elif event in _ASKED:
            logger.info(event, task=task_id, data=_loaded(data))


def _loaded(data: str | None) -> object:
    """Return what an event tells as a value: as text a log of JSON would have it escaped."""
    return None if data is None else json.loads(data)


def _open_server(
    settings: Settings, database: Database, worker: "Worker", began: Place
) -> "Server | None":
    """Return the HTTP API, which listens and does not answer yet; without its port tasks still run."""
    if not settings.server.enabled:
        return None
    from agent.server.server_thread import Server

    try:
        return Server(settings, database, worker, began)
    except OSError as error:
        structlog.get_logger(__name__).warning(
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
    # Loaded only where there are channels: the HTTP client takes a while.
    from agent.channels.supervisor import Channels

    return Channels(settings, database)


async def _watch_workflows(settings: Settings, database: Database, server: "Server | None") -> None:
    """Keep the stored workflows equal to the files, as they change; then let the server answer.

    Who asks for a workflow at once finds those that are in files. Where they cannot be put on record
    yet, the server answers all the same, and says of a name that it does not know to come back.
    """
    logger = structlog.get_logger(__name__)
    shelf = workflow_sync.WorkflowSync(settings)
    is_first, has_started = True, False
    if server is not None:
        server.startup.has_workflows = False
    while True:
        try:
            changes = await asyncio.to_thread(shelf.sync, database)
        except Exception as error:
            # Files and databases come back; tasks in flight must not stop for this.
            logger.warning("workflows could not be read", error=str(error))
        else:
            for change in changes:
                if change.event == "workflow.broken":
                    logger.warning(change.event, **change.details)
                elif is_first:
                    # The greeting lists them all.
                    logger.debug(change.event, **change.details)
                else:
                    logger.info(change.event, **change.details)
            is_first = False
            if server is not None:
                server.startup.has_workflows = True
        if server is not None and not has_started:
            server.start()
            has_started = True
        await asyncio.sleep(_LOOK_SECONDS)


def _end_in_any_case(seconds: float) -> None:
    """End the process after this time, whatever hangs: what it held is then taken over."""
    timer = threading.Timer(seconds, os._exit, args=(1,))
    timer.daemon = True
    timer.start()
