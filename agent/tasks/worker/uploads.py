"""Large values on their way to a store outside the database, before the turn that refers to them.

An outcome or a note with a large part is held here until the part is stored. What does not need the
store goes on: other attempts at once, and of the same attempt its intents. A checkpoint and an outcome
wait for the results before them, since a call is resolved before or with its attempt's end.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from agent.core.ids import content_hash
from agent.steps.types.outcome import Json
from agent.store.artifacts import artifact_rows
from agent.store.artifacts.artifact_rows import PackedContent
from agent.store.artifacts.blobs import BlobStore, store_of
from agent.store.db.database import StoreError
from agent.tasks.commit.batch import Completion, JournalEntry
from agent.tasks.commit.large_values import large_content
from agent.tasks.rules.settlement import Claim
from agent.tasks.worker.outages import Outages
from agent.tasks.worker.outbox import Outbox

MOST_HELD_BYTES: Final = 256 * 1024 * 1024
"""Beyond this, outcomes that wait count as running, so that fewer steps are started."""
_AT_ONCE: Final = 4

_Key = tuple[str, int]


class Uploads:
    """Stands before the outbox of a worker whose large values are kept outside the database."""

    def __init__(
        self, outbox: Outbox, outages: Outages, url: str, wake: Callable[[], None]
    ) -> None:
        self._outbox = outbox
        self._wake = wake
        self._outages = outages
        self._url = url
        self._blob_store: BlobStore = outages.blob_stores.open(url)
        self._queues: dict[_Key, deque[JournalEntry | Completion]] = {}
        self._tasks: dict[_Key, asyncio.Task[None]] = {}
        self._kept: dict[tuple[_Key, str], PackedContent] = {}
        """Requests that were stored ahead of their intents."""
        self._is_delayed: set[_Key] = set()
        self._connecting: asyncio.Task[None] | None = None
        self._at_once = asyncio.Semaphore(_AT_ONCE)
        self._held_bytes = 0

    @property
    def ended(self) -> int:
        """How many attempts are over and wait only for the store, within what memory allows."""
        if self._held_bytes > MOST_HELD_BYTES:
            return 0
        return sum(isinstance(queue[-1], Completion) for queue in self._queues.values() if queue)

    @property
    def is_stranded(self) -> bool:
        """Whether the store does not answer."""
        return self._outages.blob_stores.breaker(self._url).reason is not None

    def connect(self) -> None:
        """Try the store until it answers once, so that an outage at the start is known at once."""
        self._connecting = asyncio.get_running_loop().create_task(self._connect())

    def add_settle(self, settle: Completion, size: int = 0) -> None:
        """Queue an outcome behind what its attempt has not recorded yet."""
        if _key(settle.claim) in self._queues or large_content(settle) is not None:
            self._hold(settle)
        else:
            self._outbox.add_settle(settle, size)

    def add_note(self, note: JournalEntry) -> None:
        """Queue what a running attempt wants recorded."""
        key, content = _key(note.claim), large_content(note)
        if note.intent is not None:
            if content is not None:
                note.packed = self._kept.pop((key, content_hash(content)), None)
            is_held = content is not None and note.packed is None
        elif note.checkpoint is not None:
            is_held = key in self._queues
        else:
            is_held = content is not None
        if is_held:
            self._hold(note)
        else:
            self._outbox.add_note(note)

    def add_log(self, row: Sequence[Any]) -> None:
        """Queue a piece of a log."""
        self._outbox.add_log(row)

    async def keep(self, claim: Claim, text: str) -> str | None:
        """Store a large request ahead of its intent; return why that cannot be done now.

        An intent says until when its effect may begin: that time must not pass while it waits here.
        """
        try:
            packed = await self._pack(text.encode())
        except StoreError as error:
            return error.message
        self._kept[_key(claim), packed.name] = packed
        return None

    def take_all(self) -> tuple[list[JournalEntry], list[Completion]]:
        """Give up waiting: return what is held, in its order."""
        if self._connecting is not None:
            self._connecting.cancel()
        for task in self._tasks.values():
            task.cancel()
        held = [each for queue in self._queues.values() for each in queue]
        self._queues, self._tasks, self._held_bytes = {}, {}, 0
        notes = [each for each in held if isinstance(each, JournalEntry)]
        return notes, [each for each in held if isinstance(each, Completion)]

    def forget(self, claim: Claim) -> None:
        """Drop what was stored for an attempt that is over."""
        key = _key(claim)
        for known in [each for each in self._kept if each[0] == key]:
            del self._kept[known]

    async def _connect(self) -> None:
        while True:
            try:
                await self._outages.call(self._url, self._blob_store.connect)
            except StoreError:
                await self._outages.until_next_try(self._url)
            else:
                return

    def _hold(self, held: JournalEntry | Completion) -> None:
        key = _key(held.claim)
        queue = self._queues.setdefault(key, deque())
        queue.append(held)
        self._held_bytes += len(large_content(held) or b"")
        if key not in self._tasks:
            self._tasks[key] = asyncio.get_running_loop().create_task(self._send(key, queue))

    async def _send(self, key: _Key, queue: deque[JournalEntry | Completion]) -> None:
        """Store the parts of one attempt and hand on what they belong to, in order."""
        while queue:
            held = queue[0]
            content = large_content(held)
            if content is not None:
                held.packed = await self._pack_patiently(held)
            queue.popleft()
            self._held_bytes -= len(content or b"")
            if isinstance(held, JournalEntry):
                if key in self._is_delayed:
                    self._tell(held, None)
                    self._is_delayed.discard(key)
                self._outbox.add_note(held)
            else:
                self._outbox.add_settle(held)
            self._wake()
        self._is_delayed.discard(key)
        del self._queues[key], self._tasks[key]

    async def _pack_patiently(self, held: JournalEntry | Completion) -> PackedContent:
        content, key = large_content(held), _key(held.claim)
        assert content is not None
        while True:
            try:
                return await self._pack(content)
            except StoreError as error:
                if key not in self._is_delayed:
                    self._is_delayed.add(key)
                    store = store_of(self._url)
                    self._tell(held, {"store": store, "error": error.message})
            await self._outages.until_next_try(self._url)

    async def _pack(self, content: bytes) -> PackedContent:
        async with self._at_once:
            return await self._outages.call(
                self._url, lambda: artifact_rows.pack(content, self._blob_store)
            )

    def _tell(self, held: JournalEntry | Completion, delay: dict[str, Json] | None) -> None:
        """Say on the step's own record what it waits for, or that it waits no longer."""
        self._outbox.add_note(JournalEntry(held.claim, held.graph, delay=delay or {}))
        self._wake()


def _key(claim: Claim) -> _Key:
    return claim.step_id, claim.token
