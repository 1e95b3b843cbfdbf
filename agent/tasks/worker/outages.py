"""Outages of stores outside the database: noticed, recorded once, and over once a store answers.

The beginning and the end of an outage are events, which channels tell people; each step that waits
for a store says so in an event of its own task.
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
from agent.tasks.worker.health import Troubles

log = structlog.get_logger(__name__)

Result = TypeVar("Result")

WHAT: Final = "artifacts"
TOLD_AFTER_SECONDS: Final = 2.0
"""People are not told of a failure that the next try makes good."""
_RETRY_SECONDS: Final = 1.0
_LONGEST_RETRY_SECONDS: Final = 30.0
_SHORTEST_PAUSE_SECONDS: Final = 0.05


@dataclass(slots=True)
class _State:
    """How one store fares."""

    since: float | None = None
    """When the first call began that got no answer, while it does not answer."""
    outage: str | None = None
    """The id of the outage that is on record."""
    is_back: asyncio.Event = field(default_factory=asyncio.Event)


class Outages:
    """Calls stores for a worker, and remembers which of them do not answer."""

    def __init__(self, database: Database, troubles: Troubles) -> None:
        self.blob_stores = stores_of(database)
        self._database = database
        self._troubles = troubles
        self._states: dict[str, _State] = {}
        self._unrecorded: list[tuple[str, dict[str, Json]]] = []
        # The loop keeps only weak references to its tasks.
        self._recording: asyncio.Task[None] | None = None

    async def call(self, address: str, function: Callable[[], Result]) -> Result:
        """Call a store within bounds; raise `StoreError` where it does not answer."""
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
        if self._troubles.note(f"{WHAT} {store}", error.message):
            log.warning("artifacts.unreachable", store=store, error=error.message)
        lasted = self._database.clock.monotonic() - state.since
        if state.outage is None and lasted >= TOLD_AFTER_SECONDS:
            state.outage = new_id()
            told: dict[str, Json] = {"outage": state.outage, "store": store, "error": error.message}
            self._record("artifacts.unreachable", told)

    def _note_success(self, store: str, state: _State) -> None:
        if state.since is None:
            return
        self._troubles.clear(f"{WHAT} {store}")
        log.info("artifacts.reachable", store=store)
        state.since = None
        state.is_back.set()
        if state.outage is not None:
            self._record("artifacts.reachable", {"outage": state.outage, "store": store})
            state.outage = None

    def _record(self, event: str, told: dict[str, Json]) -> None:
        self._unrecorded.append((event, told))
        if self._recording is None or self._recording.done():
            self._recording = asyncio.get_running_loop().create_task(self._write())

    async def _write(self) -> None:
        """Put the events on record, in their order, however often that has to be tried."""
        backoff = Backoff(_RETRY_SECONDS, _LONGEST_RETRY_SECONDS)
        while self._unrecorded:
            event, told = self._unrecorded[0]
            try:
                # Not in the database's thread: turns must not wait for it.
                await asyncio.to_thread(outages.record, self._database, event, told)
            except StoreError as error:
                log.warning("outage.not_recorded", error=error.message)
                await asyncio.sleep(backoff.next_seconds())
            else:
                self._unrecorded.pop(0)
