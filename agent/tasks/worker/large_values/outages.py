"""Outages of stores outside the database: detected, recorded once, and over once a store answers.

The beginning and the end of an outage are events, and channels notify people of them. Each step that
waits for a store has an event in its own task.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeVar

import structlog

from agent.core.backoff import Backoff
from agent.core.ids import new_id
from agent.steps.types.outcome import Json
from agent.store.artifacts.blobs import store_of, stores_of
from agent.store.db.database import Database, StoreError
from agent.store.engine import outages
from agent.tasks.worker.health import Health

log = structlog.get_logger(__name__)

Result = TypeVar("Result")

WHAT: Final = "artifacts"
RECORDED_AFTER_SECONDS: Final = 2.0
"""A failure that the next try makes good is not recorded."""
_RETRY_SECONDS: Final = 1.0
_LONGEST_RETRY_SECONDS: Final = 30.0
_SHORTEST_PAUSE_SECONDS: Final = 0.05


@dataclass(slots=True)
class _State:
    """The state of one store."""

    since: float | None = None
    """While the store does not answer: when its first failed call began."""
    outage: str | None = None
    """The id of the outage that was recorded."""
    is_back: asyncio.Event = field(default_factory=asyncio.Event)


class Outages:
    """Calls stores for a worker, and knows which of them do not answer."""

    def __init__(self, database: Database, health: Health) -> None:
        self.blob_stores = stores_of(database)
        self._database = database
        self._health = health
        self._states: dict[str, _State] = {}
        self._unrecorded: list[tuple[str, dict[str, Json]]] = []
        # The loop keeps only weak references to its tasks.
        self._recording: asyncio.Task[None] | None = None

    async def resume(self) -> None:
        """Take over outages that were open when the last worker stopped.

        Only on SQLite: elsewhere the worker that recorded an outage may still be running.
        """
        if not self._database.is_sqlite:
            return
        try:
            open_outages = await asyncio.to_thread(outages.open_outages, self._database)
        except StoreError as error:
            log.warning("outages.not_resumed", error=error.message)
            return
        for store, outage in open_outages.items():
            state = self._states.setdefault(store, _State())
            if state.outage is None:
                state.outage, state.since = outage, self._database.clock.monotonic()

    async def call(self, address: str, function: Callable[[], Result]) -> Result:
        """Call a store with a timeout; raise `StoreError` where it does not answer."""
        store = store_of(address)
        state = self._states.setdefault(store, _State())
        began = self._database.clock.monotonic()
        try:
            result = await self.blob_stores.breaker(address).call_async(
                function, self.blob_stores.timeout_seconds
            )
        except StoreError as error:
            self._note_failure(store, state, began, error)
            raise
        self._note_success(store, state)
        return result

    async def until_next_try(self, address: str) -> None:
        """Wait until a store answers another call, or may be tried again."""
        state = self._states.setdefault(store_of(address), _State())
        seconds = max(self.blob_stores.breaker(address).retry_in_seconds, _SHORTEST_PAUSE_SECONDS)
        try:
            async with asyncio.timeout(seconds):
                await state.is_back.wait()
        except TimeoutError:
            return

    def _note_failure(self, store: str, state: _State, began: float, error: StoreError) -> None:
        state.is_back.clear()
        if state.since is None:
            state.since = began
        if self._health.report(f"{WHAT} {store}", error.message):
            log.warning("artifacts.unreachable", store=store, error=error.message)
        lasted = self._database.clock.monotonic() - state.since
        if state.outage is None and lasted >= RECORDED_AFTER_SECONDS:
            state.outage = new_id()
            data: dict[str, Json] = {"outage": state.outage, "store": store, "error": error.message}
            self._record("artifacts.unreachable", data)

    def _note_success(self, store: str, state: _State) -> None:
        if state.since is None:
            return
        self._health.resolve(f"{WHAT} {store}")
        log.info("artifacts.reachable", store=store)
        state.since = None
        state.is_back.set()
        if state.outage is not None:
            self._record("artifacts.reachable", {"outage": state.outage, "store": store})
            state.outage = None

    def _record(self, event: str, data: dict[str, Json]) -> None:
        self._unrecorded.append((event, data))
        if self._recording is None or self._recording.done():
            self._recording = asyncio.get_running_loop().create_task(self._write())

    async def _write(self) -> None:
        """Record the events in order, with retries."""
        backoff = Backoff(_RETRY_SECONDS, _LONGEST_RETRY_SECONDS)
        while self._unrecorded:
            event, data = self._unrecorded[0]
            try:
                # Not in the database thread: commits must not wait for it.
                await asyncio.to_thread(outages.record, self._database, event, data)
            except StoreError as error:
                log.warning("outage.not_recorded", error=error.message)
                await asyncio.sleep(backoff.next_seconds())
            else:
                self._unrecorded.pop(0)
