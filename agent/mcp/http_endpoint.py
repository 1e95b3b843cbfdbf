"""`/mcp` on the daemon: the protocol over HTTP, for every token as far as its scopes go.

The guard of the server has checked host, origin and token before a request comes here. The SDK is loaded
with the first request, in a thread: it takes a second, and most daemons never need it.
"""

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import structlog
from fastapi import FastAPI
from starlette.types import Message, Receive, Scope, Send

from agent.core.scopes import implied
from agent.mcp import sdk
from agent.mcp.api_calls import Api, in_process
from agent.server.access.grants import TokenGrant
from agent.server.context import Context
from agent.server.problems import Problem, problem_of, retry_later
from agent.server.requests.openapi import describe
from agent.server.requests.route_registry import GRANT

if TYPE_CHECKING:
    from mcp.server import ServerRequestContext
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

    from agent.mcp.protocol_server import ProtocolServer

log = structlog.get_logger(__name__)

PATH: Final = "/mcp"
_MAX_SESSIONS: Final = 1000
_CLOSE_SECONDS: Final = 2.0


class HttpEndpoint:
    """Answers the requests of clients over HTTP."""

    def __init__(self, routes: FastAPI, context: Context) -> None:
        self._routes = routes
        self._max_body_bytes = context.settings.server.max_body_bytes
        self._max_streams = context.settings.server.max_streams
        self._streams = 0
        """Open streams of clients of earlier protocols."""
        self._starting: asyncio.Future[StreamableHTTPSessionManager] | None = None
        self._protocol: ProtocolServer | None = None
        self._running: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; a problem of its own is a problem document, as of the routes."""
        has_started = False
        is_stream = scope["method"] == "GET"

        async def send_noted(message: Message) -> None:
            nonlocal has_started
            has_started = True
            await send(message)

        self._streams += is_stream
        try:
            if is_stream and self._streams > self._max_streams:
                raise retry_later(503, "overloaded", "too many streams are open", 5)
            manager = await self._manager()
            await manager.handle_request(_owned(scope), receive, send_noted)
        except Exception as error:
            if has_started:
                raise
            await problem_of(error).response()(scope, receive, send)
        finally:
            self._streams -= is_stream

    def close(self) -> None:
        """End the streams and sessions: the server stops."""
        if self._protocol is not None:
            self._protocol.close()
        self._closing.set()

    async def closed(self) -> None:
        """Wait until the sessions have ended, for a limited time."""
        if self._running is not None:
            await asyncio.wait({self._running}, timeout=_CLOSE_SECONDS)

    async def _manager(self) -> "StreamableHTTPSessionManager":
        if self._starting is None:
            self._starting = asyncio.ensure_future(self._start())
        starting = self._starting
        try:
            return await asyncio.shield(starting)
        except Exception:
            # The library may be installed while the daemon runs.
            if self._starting is starting:
                self._starting = None
            raise

    async def _start(self) -> "StreamableHTTPSessionManager":
        try:
            await asyncio.to_thread(_import_all)
        except sdk.MissingSdkError as error:
            raise Problem(501, "not-installed", str(error)) from None
        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

        from agent.mcp.change_watch import ChangeWatch
        from agent.mcp.protocol_server import ProtocolServer

        description = describe(self._routes)
        reader = TokenGrant("mcp", implied(["read"]), "")
        changes = ChangeWatch(in_process(self._routes, reader, None))
        self._protocol = ProtocolServer(description, self._api_of, changes)
        manager = StreamableHTTPSessionManager(
            self._protocol.server,
            max_request_body_size=self._max_body_bytes,
            max_sessions=_MAX_SESSIONS,
        )
        is_open = asyncio.Event()
        self._running = asyncio.create_task(self._hold_open(manager, is_open))
        await is_open.wait()
        return manager

    async def _hold_open(
        self, manager: "StreamableHTTPSessionManager", is_open: asyncio.Event
    ) -> None:
        """Keep the SDK's task group open until the server stops: it must end in the task it began in."""
        with suppress(asyncio.CancelledError):
            async with manager.run():
                is_open.set()
                await self._closing.wait()

    def _api_of(self, context: "ServerRequestContext[Any]") -> Api:
        """Return the API as the token of a request may use it."""
        request = context.request
        assert request is not None
        return in_process(self._routes, request.scope[GRANT], request.scope.get("client"))


def _import_all() -> None:
    sdk.load()
    import agent.mcp.protocol_server  # noqa: F401


def _owned(scope: Scope) -> Scope:
    """Bind a session to the token that opened it: the SDK compares the users of its requests."""
    from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
    from mcp.server.auth.provider import AccessToken

    grant: TokenGrant = scope[GRANT]
    token = AccessToken(token="", client_id=f"{grant.name} {grant.hash}", scopes=[])
    return {**scope, "user": AuthenticatedUser(token)}
