"""Notices to clients: the list of tools changed, or a resource did.

It polls the API while a client listens, and not otherwise. Clients of the protocol of 2026 subscribe;
clients of earlier protocols get a notification on their session when the list of tools has changed.
"""

import asyncio
import math
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import structlog
from mcp.server import ServerRequestContext
from mcp.server.session import ServerSession
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from agent.mcp import resources
from agent.mcp.api_calls import Api, ApiError, ApiRequest

log = structlog.get_logger(__name__)

_POLL_SECONDS: Final = 2.0
_SESSION_SECONDS: Final = 1800.0
"""How long after it has listed the tools a session over HTTP is notified of changes."""
_PAGE: Final = 1000
_MAX_SESSIONS: Final = 1000


class ChangeWatch(InMemorySubscriptionBus):
    """Publishes changes to the clients that listen."""

    def __init__(self, api: Api) -> None:
        super().__init__()
        self._api = api
        self._watching: asyncio.Task[None] | None = None
        self._subscribers = 0
        self._sessions: OrderedDict[str, tuple[ServerSession, float]] = OrderedDict()
        """By the id of the session, of clients of earlier protocols that have listed the tools."""

    def subscribe(self, listener: Callable[[ServerEvent], None]) -> Callable[[], None]:
        """Register a client's stream."""
        unsubscribe = super().subscribe(listener)
        self._subscribers += 1
        self._start()
        is_over = False

        def leave() -> None:
            nonlocal is_over
            if not is_over:
                is_over = True
                self._subscribers -= 1
            unsubscribe()

        return leave

    def remember(self, context: ServerRequestContext[Any]) -> None:
        """Tell a client of an earlier protocol when the tools that it has listed change."""
        if context.protocol_version in MODERN_PROTOCOL_VERSIONS:
            return
        request = context.request
        key, until = "", math.inf
        if request is not None:
            key = request.headers.get("mcp-session-id", "")
            until = asyncio.get_running_loop().time() + _SESSION_SECONDS
        self._sessions[key] = (context.session, until)
        self._sessions.move_to_end(key)
        if len(self._sessions) > _MAX_SESSIONS:
            self._sessions.popitem(last=False)
        self._start()

    def forget(self, session_id: str) -> None:
        """Notify a session no longer."""
        self._sessions.pop(session_id, None)

    def close(self) -> None:
        """Stop watching."""
        self._sessions.clear()
        if self._watching is not None:
            self._watching.cancel()

    def _start(self) -> None:
        if self._watching is None or self._watching.done():
            self._watching = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        tools, cursor = await self._tools(None), await self._newest()
        while self._subscribers or self._sessions:
            await asyncio.sleep(_POLL_SECONDS)
            self._forget_sessions()
            current = await self._tools(tools)
            if current != tools:
                tools = current
                await self._publish_tools()
            if self._subscribers:
                cursor = await self._publish_events(cursor)

    async def _tools(self, known: Any) -> Any:
        """Return the facts that decide the list of tools; the last known ones if the agent does not answer."""
        try:
            listed = await self._api.call(ApiRequest("GET", "/api/v1/workflows"))
        except ApiError as error:
            log.debug("mcp.changes_not_read", error=str(error))
            return known
        return [
            (entry["tool"], entry["version"], entry["created_at"])
            for entry in listed["workflows"]
            if entry.get("tool") is not None
        ]

    async def _publish_tools(self) -> None:
        await self.publish(ToolsListChanged())
        for key, (session, _) in list(self._sessions.items()):
            try:
                await session.send_tool_list_changed()
            except Exception:
                # The client has gone: its session ends by itself.
                self._sessions.pop(key, None)

    def _forget_sessions(self) -> None:
        now = asyncio.get_running_loop().time()
        for key in [key for key, (_, until) in self._sessions.items() if until < now]:
            del self._sessions[key]

    async def _newest(self) -> str | None:
        with suppress(ApiError):
            page = await self._api.call(
                ApiRequest("GET", "/api/v1/events", {"limit": 1, "newest": True})
            )
            cursor: str | None = page["cursor"]
            return cursor
        return None

    async def _publish_events(self, cursor: str | None) -> str | None:
        try:
            page = await self._api.call(
                ApiRequest("GET", "/api/v1/events", {"after": cursor, "limit": _PAGE})
            )
        except ApiError as error:
            log.debug("mcp.changes_not_read", error=str(error))
            return cursor
        changed = dict.fromkeys(f"{resources.TASK}{event['task']}" for event in page["events"])
        if any(event["type"].startswith("approval.") for event in page["events"]):
            changed[resources.APPROVALS] = None
        for uri in changed:
            await self.publish(ResourceUpdated(uri))
        newest: str | None = page["cursor"]
        return newest
