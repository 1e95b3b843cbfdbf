"""Events as they are committed, as Server-Sent Events.

Each stream reads the event log by its own cursor, so that a slow client misses none. The worker's
commits and notifications of other processes wake the streams at once; a poll finds the rest.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any, Final

from agent.server.access.grants import TokenGrant
from agent.server.db_pool import DbPool
from agent.server.problems import Problem, retry_later
from agent.server.token_shares import TokenShares
from agent.store.db.database import StoreError
from agent.tasks.read_models import task_documents

_PAGE: Final = 200
_POLL_SECONDS: Final = 0.5
_KEEPALIVE_SECONDS: Final = 15.0


class EventStream:
    """All open streams of a server; `notify` wakes them after a commit."""

    def __init__(self, loop: asyncio.AbstractEventLoop, max_streams: int) -> None:
        self._loop = loop
        self._shares = TokenShares(max_streams, "too many streams are open")
        self._wakeup = asyncio.Event()
        self._is_closed = False

    def notify(self, _events: list[tuple[Any, ...]]) -> None:
        """Wake the streams after a commit; called in the worker's loop."""
        if self._shares.has_any and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake)

    def close(self) -> None:
        """End all streams; clients resume from their last event."""
        self._is_closed = True
        self._wake()

    def check(self, grant: TokenGrant) -> None:
        """Refuse a new stream if the server is stopping, or has too many in all or of this token."""
        if self._is_closed:
            raise retry_later(503, "stopping", "the agent is stopping")
        self._shares.check(grant)

    async def stream(
        self,
        read_pool: DbPool,
        after: str | None,
        task_id: str | None,
        grant: TokenGrant,
        is_allowed: Callable[[], bool],
    ) -> AsyncIterator[bytes]:
        """Yield events after a cursor, and comments to keep the connection alive.

        Call `check` first. The stream ends when `is_allowed` turns false: the token was revoked.
        """
        with self._shares.taken(grant):
            yield b": events follow\n\n"
            idle_seconds = 0.0
            while not self._is_closed and is_allowed():
                wakeup = self._wakeup
                events = await self._read(read_pool, after, task_id)
                if events:
                    after = events[-1]["cursor"]
                    idle_seconds = 0.0
                    yield b"".join(map(_frame, events))
                if len(events) >= _PAGE:
                    continue
                with suppress(TimeoutError):
                    async with asyncio.timeout(_POLL_SECONDS):
                        await wakeup.wait()
                idle_seconds += _POLL_SECONDS
                if idle_seconds >= _KEEPALIVE_SECONDS:
                    idle_seconds = 0.0
                    yield b": still here\n\n"

    async def _read(
        self, read_pool: DbPool, after: str | None, task_id: str | None
    ) -> list[dict[str, Any]]:
        try:
            return await read_pool.read(
                lambda connection: task_documents.read_events(connection, after, task_id, _PAGE)
            )
        except (Problem, StoreError):
            # Overloaded, or no database at the moment: the stream stays open and polls again.
            return []

    def _wake(self) -> None:
        # A fresh event for the next wait; setting this one wakes every stream.
        self._wakeup.set()
        self._wakeup = asyncio.Event()


def _frame(event: dict[str, Any]) -> bytes:
    data = json.dumps(event, ensure_ascii=False, separators=(",", ":"))
    return f"id: {event['cursor']}\nevent: {event['type']}\ndata: {data}\n\n".encode()
