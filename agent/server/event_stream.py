"""Events as they are committed, for as long as somebody listens (Server-Sent Events).

Streams read the event log by cursor, each at its own pace, so that none is missed however slow its
reader is. Commits of the worker wake them at once, and so do the notices of other processes; a poll
finds what sent no notice.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any, Final

from agent.server.db_pool import DbPool
from agent.server.problems import Problem, retry_later
from agent.store.db.database import StoreError
from agent.tasks.read_models import task_documents

_PAGE: Final = 200
_LOOK_SECONDS: Final = 0.5
_BEAT_SECONDS: Final = 15.0


class EventStream:
    """Wakes streams when there is something to read."""

    def __init__(self, loop: asyncio.AbstractEventLoop, most_streams: int) -> None:
        self._loop = loop
        self._most_streams = most_streams
        self._news = asyncio.Event()
        self._streams = 0
        self._is_closed = False

    def tell(self, _events: list[tuple[Any, ...]]) -> None:
        """Wake the streams after a commit; called in the worker's loop."""
        if self._streams and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake)

    def close(self) -> None:
        """End all streams: their readers go on from their last event elsewhere."""
        self._is_closed = True
        self._wake()

    def check(self) -> None:
        """Refuse one stream more than there may be."""
        if self._is_closed:
            raise retry_later(503, "stopping", "the agent is stopping")
        if self._streams >= self._most_streams:
            raise retry_later(503, "overloaded", "too many streams are open", 5)

    async def stream(
        self,
        read_pool: DbPool,
        after: str | None,
        task_id: str | None,
        is_welcome: Callable[[], bool],
    ) -> AsyncIterator[bytes]:
        """Yield events after a cursor, and now and then a comment; `check` comes before.

        It ends when whoever reads it is no longer welcome.
        """
        self._streams += 1
        try:
            yield b": events follow\n\n"
            since_beat = 0.0
            while not self._is_closed and is_welcome():
                news = self._news
                found = await self._read(read_pool, after, task_id)
                if found:
                    after = found[-1]["cursor"]
                    since_beat = 0.0
                    yield b"".join(map(_frame, found))
                if len(found) >= _PAGE:
                    continue
                with suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK_SECONDS):
                        await news.wait()
                since_beat += _LOOK_SECONDS
                if since_beat >= _BEAT_SECONDS:
                    since_beat = 0.0
                    yield b": still here\n\n"
        finally:
            self._streams -= 1

    async def _read(
        self, read_pool: DbPool, after: str | None, task_id: str | None
    ) -> list[dict[str, Any]]:
        try:
            return await read_pool.read(
                lambda connection: task_documents.read_events(connection, after, task_id, _PAGE)
            )
        except (Problem, StoreError):
            # Too busy, or no database for now: the stream stays and looks again.
            return []

    def _wake(self) -> None:
        # A new event for the next wait: everybody who waits on this one has been told.
        self._news.set()
        self._news = asyncio.Event()


def _frame(event: dict[str, Any]) -> bytes:
    data = json.dumps(event, ensure_ascii=False, separators=(",", ":"))
    return f"id: {event['cursor']}\nevent: {event['type']}\ndata: {data}\n\n".encode()
