"""`/mcp` on the daemon: the protocol over HTTP, for every token as far as its scopes go.

The guard of the server has checked host, origin and token before a request comes here. The SDK is loaded
with the first request, in a thread: it takes a second, and most daemons never need it.
"""

import asyncio
from collections import OrderedDict
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import structlog
from fastapi import FastAPI
from starlette.datastructures import Headers
from starlette.types import Message, Receive, Scope, Send

from agent.core.scopes import implied
from agent.mcp import sdk
from agent.mcp.api_calls import Api, in_process
from agent.server.access.grants import TokenGrant
from agent.server.context import Context, while_allowed
from agent.server.problems import Problem, problem_of
from agent.server.requests.openapi import describe
from agent.server.requests.route_registry import GRANT
from agent.server.token_shares import TokenShares

if TYPE_CHECKING:
    from mcp.server import ServerRequestContext
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

    from agent.mcp.protocol_server import ProtocolServer

log = structlog.get_logger(__name__)

PATH: Final = "/mcp"
_MAX_SESSIONS: Final = 1000
_MAX_SESSIONS_OF_ONE: Final = 100
"""Of clients of earlier protocols, in all and of one token; the SDK ends those that are idle for half an hour."""
_SESSION: Final = "mcp-session-id"
_CLOSE_SECONDS: Final = 2.0


@dataclass(slots=True)
class _Session:
    """A session of a client of an earlier protocol."""

    grant: TokenGrant
    in_progress: int = 0
    """Its requests and streams."""


class HttpEndpoint:
    """Answers the requests of clients over HTTP."""

    def __init__(self, routes: FastAPI, context: Context) -> None:
        self._routes = routes
        self._max_body_bytes = context.settings.server.max_body_bytes
        self._max_requests = context.settings.server.max_requests
        self._tokens = context.tokens
        self._streams = TokenShares(
            context.settings.server.max_streams, "too many streams are open"
        )
        """Open streams of clients of earlier protocols."""
        self._sessions: OrderedDict[str, _Session] = OrderedDict()
        """By their ids, the longest idle first."""
        self._starting: asyncio.Future[StreamableHTTPSessionManager] | None = None
        self._protocol: ProtocolServer | None = None
        self._running: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; a problem of its own is a problem document, as of the routes."""
        grant: TokenGrant = scope[GRANT]
        has_started = False

        async def send_noted(message: Message) -> None:
            nonlocal has_started
            has_started = True
            if opened := Headers(raw=message.get("headers", ())).get(_SESSION):
                self._sessions.setdefault(opened, _Session(grant))
            await send(message)

        is_stream = scope["method"] == "GET"
        try:
            if is_stream:
                self._streams.check(grant)
            manager = await self._manager()
            with self._streams.taken(grant) if is_stream else nullcontext():
                handling = self._handle(manager, scope, receive, send_noted)
                await while_allowed(partial(self._tokens.still_holds, grant), handling)
            await self._end_excess_sessions(manager, grant)
        except Exception as error:
            if not has_started:
                await problem_of(error).response()(scope, receive, send)
            elif isinstance(error, Problem):
                # The token of a stream was revoked.
                await send({"type": "http.response.body", "body": b"", "more_body": False})
            else:
                raise

    async def _handle(
        self, manager: "StreamableHTTPSessionManager", scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Pass a request on to the SDK, and note that its session is in use."""
        session_id = Headers(scope=scope).get(_SESSION, "")
        session = self._sessions.get(session_id)
        if session is None:
            await manager.handle_request(_owned(scope), receive, send)
            return
        has_ended = scope["method"] == "DELETE"

        async def send_noted(message: Message) -> None:
            nonlocal has_ended
            # The SDK has ended it, since it was idle.
            has_ended = has_ended or message.get("status") == HTTPStatus.NOT_FOUND
            await send(message)

        session.in_progress += 1
        try:
            await manager.handle_request(_owned(scope), receive, send_noted)
        finally:
            session.in_progress -= 1
            if has_ended:
                self._forget(session_id)
            elif session_id in self._sessions:
                self._sessions.move_to_end(session_id)

    async def _end_excess_sessions(
        self, manager: "StreamableHTTPSessionManager", grant: TokenGrant
    ) -> None:
        """End the longest idle session if there are too many: of this token, or else of all."""
        own = [key for key, session in self._sessions.items() if session.grant == grant]
        for keys, most in ((own, _MAX_SESSIONS_OF_ONE), (list(self._sessions), _MAX_SESSIONS)):
            if len(keys) > most:
                # The first that has no request in progress, or else the first.
                key = min(keys, key=lambda key: self._sessions[key].in_progress > 0)
                await manager.handle_request(*_end_of(key, self._sessions[key].grant))
                self._forget(key)
                return

    def _forget(self, session_id: str) -> None:
        self._sessions.pop(session_id, None)
        if self._protocol is not None:
            self._protocol.forget(session_id)

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
            # Ours is reached first: it ends others instead of refusing a new one.
            max_sessions=_MAX_SESSIONS + self._max_requests,
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
        grant: TokenGrant = request.scope[GRANT]
        holds = partial(self._tokens.still_holds, grant)
        return in_process(self._routes, grant, request.scope.get("client"), holds)


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


def _end_of(session_id: str, grant: TokenGrant) -> tuple[Scope, Receive, Send]:
    """Return the request by which a client ends its session."""

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(_: Message) -> None:
        return None

    headers = [(_SESSION.encode(), session_id.encode())]
    scope = {"type": "http", "method": "DELETE", "path": PATH, "query_string": b""}
    return _owned({**scope, "headers": headers, GRANT: grant}), receive, send
