"""The worker inside a command: `agent run` and others run their task without a daemon."""

import asyncio
import contextlib
import threading

from agent import bootstrap
from agent.config.settings import Settings
from agent.core import event_loop
from agent.core.logs import logging
from agent.daemon import startup_retry
from agent.daemon.task_spans import TaskSpans
from agent.store.db.database import Database
from agent.tasks.read_models.event_tail import EventTail
from agent.tasks.worker import watchdog


class EmbeddedWorker:
    """Runs tasks in a thread for as long as the `with` block lasts; the caller holds the lock."""

    def __init__(self, settings: Settings, database: Database) -> None:
        # The log shares the terminal with the command's output: only warnings belong there.
        logging.configure(settings.log.format, "warning")
        self._database = database
        self._worker = bootstrap.build_worker(settings, database)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._has_started = threading.Event()
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="worker", daemon=True)

    def __enter__(self) -> "EmbeddedWorker":
        self._thread.start()
        self._has_started.wait()
        return self

    def __exit__(self, *_: object) -> None:
        if self._loop is not None and self._thread.is_alive():
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._worker.stop)
        self._thread.join()

    def check(self) -> None:
        """Raise the error that ended the worker, if one did."""
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
        await startup_retry.recover(self._database, self._worker.services.limits)
        self._loop = asyncio.get_running_loop()
        self._has_started.set()
        with watchdog.watching(self._worker.blocks):
            spans = self._worker.services.spans
            if spans is None:
                await self._worker.run()
                return
            tail = EventTail(self._database)
            TaskSpans(self._database, spans).subscribe(tail)
            self._worker.commit_listeners.append(tail.wake)
            tail.start()
            try:
                await self._worker.run()
            finally:
                await asyncio.to_thread(tail.stop)
                await asyncio.to_thread(spans.close)
