"""The server as the daemon holds it: a thread with an event loop of its own, beside the worker."""

import asyncio
import socket
import threading
from typing import TYPE_CHECKING, Final

import structlog

from agent.config import Settings
from agent.server.address import listen, url_of
from agent.server.readiness import Readiness
from agent.server.tokens import Tokens
from agent.store.database import Database
from agent.tasks.worker import Worker

if TYPE_CHECKING:
    import uvicorn

    from agent.server.context import Context

log = structlog.get_logger(__name__)

GRACE_SECONDS: Final = 3.0
"""How long requests in flight may go on when the server ends."""
_LAST_SECONDS: Final = 2.0
_CONNECTIONS: Final = 900
"""Open at the same time, idle ones included: a process has often no more than 1,024 files."""


class Server:
    """Listens from the moment it is made; answers once `start` was called."""

    def __init__(self, settings: Settings, database: Database, worker: Worker) -> None:
        """Take the address, or raise OSError; make the owner's token unless there is one."""
        # Here and not in the server's thread: modules that two threads load at once, each needing
        # the other's, may be seen half made.
        import agent.server.application  # noqa: F401

        self.tokens = Tokens(settings.home)
        self.tokens.ensure_owner()
        self.readiness = Readiness()
        self._settings = settings
        self._database = database
        self._worker = worker
        self._listening: socket.socket = listen(settings.server)
        self.url = url_of(self._listening)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._uvicorn: uvicorn.Server | None = None
        self._context: Context | None = None
        self._is_stopping = threading.Event()
        self._has_started = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to answer; called from the worker's loop."""
        worker_loop = asyncio.get_running_loop()
        self._thread = threading.Thread(
            target=self._run, args=(worker_loop,), name="api", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Begin to end: nothing new is taken, streams end, requests in flight get their grace."""
        self._is_stopping.set()
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._end)

    async def closed(self) -> None:
        """Wait until it has ended, for a bounded time."""
        if self._thread is None:
            self._listening.close()
            return
        await asyncio.to_thread(self._thread.join, GRACE_SECONDS + _LAST_SECONDS)

    def wait_until_ready(self, timeout_seconds: float) -> bool:
        """Wait until it answers; say whether it does."""
        return self._has_started.wait(timeout_seconds)

    def _run(self, worker_loop: asyncio.AbstractEventLoop) -> None:
        try:
            asyncio.run(self._serve(worker_loop))
        except Exception:
            # Tasks go on without it.
            log.exception("api.ended")
        finally:
            self._listening.close()

    async def _serve(self, worker_loop: asyncio.AbstractEventLoop) -> None:
        import uvicorn

        from agent.server.application import build, close, context_of
        from agent.server.connection import HEAD_SECONDS, Connection

        context = context_of(
            self._settings, self._database, self._worker, worker_loop, self.tokens, self.readiness
        )
        self._context = context
        self._uvicorn = uvicorn.Server(
            uvicorn.Config(
                build(context),
                lifespan="off",
                ws="none",
                http=Connection,
                log_config=None,
                log_level="warning",
                access_log=False,
                # Whoever is behind a proxy is the proxy: headers can say anything.
                proxy_headers=False,
                server_header=False,
                timeout_keep_alive=int(HEAD_SECONDS),
                timeout_graceful_shutdown=int(GRACE_SECONDS),
                limit_concurrency=max(_CONNECTIONS, 2 * self._settings.server.max_requests),
            )
        )
        self._loop = asyncio.get_running_loop()
        if self._is_stopping.is_set():
            self._end()
        self._worker.listeners += [context.feed.tell, context.meters.tell]
        self._has_started.set()
        try:
            await self._uvicorn.serve(sockets=[self._listening])
        finally:
            for listener in (context.feed.tell, context.meters.tell):
                self._worker.listeners.remove(listener)
            await asyncio.to_thread(close, context)

    def _end(self) -> None:
        assert self._context is not None
        assert self._uvicorn is not None
        self._context.desk.is_open = False
        self._context.feed.close()
        self._uvicorn.should_exit = True
