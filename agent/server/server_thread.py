"""The HTTP server in a thread of the daemon, with its own event loop."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

import structlog

from agent.config.file_exposure import trust_of
from agent.config.settings import Settings
from agent.core.files import file_descriptors
from agent.server.access.sessions import Sessions, cookie_name
from agent.server.access.tokens import Tokens
from agent.server.connections.bind import listen, url_of
from agent.server.startup import Startup
from agent.steps.attempt.services import Limits
from agent.store.channels.cursors import LogPosition
from agent.store.db.database import Database, StoreError
from agent.tasks.read_models.event_tail import EventTail
from agent.tasks.worker.worker import Worker

if TYPE_CHECKING:
    from fastapi import FastAPI
    from starlette.types import Receive, Scope, Send

    from agent.server.connections.uvicorn_server import UvicornServer
    from agent.server.context import Context

log = structlog.get_logger(__name__)

GRACE_SECONDS: Final = 3.0
"""How long requests in progress may continue when the server stops."""
_JOIN_SECONDS: Final = 2.0
_MIN_CONNECTIONS: Final = 16
_MAX_CONNECTIONS: Final = 900
"""Open at the same time, idle ones included; or twice `max_requests`, if that is more."""
_OWN_DESCRIPTORS: Final = 128
"""File descriptors for the database, the log, the channels and the listening socket."""
_DESCRIPTORS_PER_SLOT: Final = 6
"""File descriptors for the pipes of a command, or the connections of a call."""


class Endpoint(Protocol):
    """Serves the requests to one path, in the server's loop."""

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """Answer a request that the guard has let through."""

    def close(self) -> None:
        """End open requests and streams: the server stops."""

    async def closed(self) -> None:
        """Wait until everything has ended."""


MakeEndpoint = Callable[["FastAPI", "Context"], Endpoint]


def max_connections(settings: Settings) -> int:
    """Return the limit on open connections that leaves file descriptors for the steps."""
    limit = file_descriptors.limit()
    reserved = min(limit // 2, _OWN_DESCRIPTORS + _DESCRIPTORS_PER_SLOT * settings.engine.slots)
    desired = max(_MAX_CONNECTIONS, 2 * settings.server.max_requests)
    return max(_MIN_CONNECTIONS, min(desired, limit - reserved))


class Server:
    """Binds its address at once, and serves requests from `start` on."""

    def __init__(
        self,
        settings: Settings,
        database: Database,
        worker: Worker,
        count_from: LogPosition | None = None,
        endpoints: Mapping[str, "MakeEndpoint"] | None = None,
    ) -> None:
        """Bind the address, or raise OSError; create the owner's token unless there is one.

        Metrics count events after `count_from`, or from the server's start. `endpoints` serve paths
        of their own, behind the same checks as the routes.
        """
        # Not in the server's thread: two threads that import modules which need each other may see
        # them partly initialised.
        import agent.server.application  # noqa: F401

        self.tokens = Tokens(settings.home, trust_of(settings))
        self.sessions = Sessions(settings.home, trust_of(settings))
        self.cookie = cookie_name(settings.home)
        self.tokens.ensure_owner()
        self.startup = Startup(started_at=database.clock.now())
        self._settings = settings
        self._database = database
        self._worker = worker
        self._count_from = count_from
        self._make_endpoints = endpoints or {}
        self._endpoints: dict[str, Endpoint] = {}
        self.reload: Callable[[], Coroutine[Any, Any, dict[str, Any]]] | None = None
        """Set before `start`: reloads the configuration, in the worker's loop."""
        self._listening: socket.socket = listen(settings.server)
        self.url = url_of(self._listening)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._uvicorn: UvicornServer | None = None
        self._context: Context | None = None
        self._is_stopping = threading.Event()
        self._has_started = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start to serve requests; called from the worker's loop."""
        worker_loop = asyncio.get_running_loop()
        self._thread = threading.Thread(
            target=self._run, args=(worker_loop,), name="api", daemon=True
        )
        self._thread.start()

    def apply(self, settings: Settings, limits: Limits) -> None:
        """Answer by changed settings from now on; those of `[server]` are the same."""
        self._settings = settings
        if self._context is not None:
            self._context.settings = settings
            self._context.watcher_checks.limits = limits

    def stop(self) -> None:
        """Stop accepting requests, end the streams, let requests in progress finish."""
        self._is_stopping.set()
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._end)

    async def closed(self) -> None:
        """Wait until the server has stopped, for a limited time."""
        if self._thread is None:
            self._listening.close()
            return
        await asyncio.to_thread(self._thread.join, GRACE_SECONDS + _JOIN_SECONDS)

    def wait_until_ready(self, timeout_seconds: float) -> bool:
        """Wait until the server responds; return whether it does."""
        return self._has_started.wait(timeout_seconds)

    def _run(self, worker_loop: asyncio.AbstractEventLoop) -> None:
        try:
            asyncio.run(self._serve(worker_loop))
        except Exception:
            # Tasks continue without the API.
            log.exception("api.ended")
        finally:
            self._listening.close()

    async def _serve(self, worker_loop: asyncio.AbstractEventLoop) -> None:
        import uvicorn

        from agent.server.application import build, build_context, build_routes, close
        from agent.server.connections.header_limits import HEAD_SECONDS, limited_to
        from agent.server.connections.uvicorn_server import UvicornServer

        if self._count_from is None:
            # If the database is down, counting begins with the first scrape.
            with contextlib.suppress(StoreError):
                self._count_from = await asyncio.to_thread(EventTail(self._database).open)
        context = build_context(
            self._settings,
            self._database,
            self._worker,
            worker_loop,
            self.tokens,
            self.sessions,
            self.startup,
            self._count_from,
        )
        if self.reload is not None:
            reload = self.reload
            context.reload = lambda: asyncio.wrap_future(
                asyncio.run_coroutine_threadsafe(reload(), worker_loop)
            )
        self._context = context
        routes = build_routes(context)
        self._endpoints = {
            path: make(routes, context) for path, make in self._make_endpoints.items()
        }
        self._uvicorn = UvicornServer(
            uvicorn.Config(
                build(context, routes, self._endpoints),
                lifespan="off",
                ws="none",
                http=limited_to(max_connections(self._settings)),
                log_config=None,
                # uvicorn warns about malformed requests, with which anyone could fill the log.
                log_level="error",
                access_log=False,
                # Forwarded-For headers can be forged: the client's address is the proxy's.
                proxy_headers=False,
                server_header=False,
                timeout_keep_alive=int(HEAD_SECONDS),
                timeout_graceful_shutdown=int(GRACE_SECONDS),
            )
        )
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(self._report)
        if self._is_stopping.is_set():
            self._end()
        listeners = (context.event_stream.notify, context.live_feed.notify)
        self._worker.commit_listeners.extend(listeners)
        # From now on the time of leases counts: external workers are answered.
        worker_loop.call_soon_threadsafe(self._worker.answering.open)
        self._has_started.set()
        try:
            await self._uvicorn.serve(sockets=[self._listening])
        finally:
            for listener in listeners:
                self._worker.commit_listeners.remove(listener)
            for endpoint in self._endpoints.values():
                await endpoint.closed()
            with contextlib.suppress(RuntimeError):
                # The worker's loop may have ended before this one.
                worker_loop.call_soon_threadsafe(self._worker.answering.close)
            await asyncio.to_thread(close, context)

    def _end(self) -> None:
        assert self._context is not None
        assert self._uvicorn is not None
        self._context.task_submitter.is_open = False
        self._context.work.stop()
        self._context.event_stream.close()
        self._context.live_feed.close()
        for endpoint in self._endpoints.values():
            endpoint.close()
        self._uvicorn.end()

    def _report(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Log an error of the loop; without file descriptors every accept fails, once a second."""
        from agent.server.problems import log_stranger

        error = context.get("exception")
        if file_descriptors.is_exhaustion(error):
            file_descriptors.report_exhaustion("a connection to the HTTP API")
        elif error is not None and "protocol" in context:
            client = getattr(context["protocol"], "client", None) or ("",)
            log_stranger("api.connection_failed", str(client[0]), error)
        elif not (self._is_stopping.is_set() and _is_late_accept(error)):
            loop.default_exception_handler(context)


def _is_late_accept(error: BaseException | None) -> bool:
    """Whether an accept that failed for lack of descriptors was retried on the closed socket.

    asyncio schedules one retry for each connection of the backlog: thousands of them.
    """
    return isinstance(error, ValueError) and "Invalid file descriptor: -1" in str(error)
