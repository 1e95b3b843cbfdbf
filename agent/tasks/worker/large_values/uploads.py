"""Uploads of large values to a store outside the database, before the commit that refers to them.

A completion or an entry with a large value waits here until the value is stored. Other attempts do not
wait, nor do the intents of the same attempt. A checkpoint and a completion wait for the results before
them, since a call is resolved before or with the end of its attempt.
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
from agent.tasks.state.isolation import WAITS_FOR_STORE
from agent.tasks.worker.large_values.outages import Outages
from agent.tasks.worker.outbox import Outbox

MOST_HELD_BYTES: Final = 256 * 1024 * 1024
"""Beyond this, completions that wait count as running, so that fewer steps start."""
_AT_ONCE: Final = 4

_Key = tuple[str, int]


class Uploads:
    """The queue before the outbox, where large values are kept outside the database."""

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
        """Requests that were stored before their intents."""
        self._is_delayed: set[_Key] = set()
        self._returned: set[_Key] = set()
        """Attempts that are over by the record: a crash costs them nothing."""
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
    def returned(self) -> int:
        """How many attempts are over by the record: their steps are no cause of a later crash."""
        return len(self._returned)

    @property
    def is_stranded(self) -> bool:
        """Whether the store does not answer."""
        return self._outages.blob_stores.breaker(self._url).reason is not None

    def connect(self) -> None:
        """Call the store until it answers once, so that an outage at the start is noticed."""
        self._connecting = asyncio.get_running_loop().create_task(self._connect())

    def has_returned(self, claim: Claim) -> bool:
        """Whether it is on record that an attempt is over, whose completion waits here."""
        return _key(claim) in self._returned

    def note_recorded(self, entry: JournalEntry) -> None:
        """Note that an entry of this attempt is committed."""
        key = _key(entry.claim)
        if entry.alone == WAITS_FOR_STORE and self._has_completion(key):
            self._returned.add(key)

    def _has_completion(self, key: _Key) -> bool:
        """Whether the completion of an attempt waits here."""
        queue = self._queues.get(key)
        return queue is not None and len(queue) > 0 and isinstance(queue[-1], Completion)

    def add_completion(self, completion: Completion, size: int = 0) -> None:
        """Queue a completion behind the unrecorded entries of its attempt."""
        if _key(completion.claim) in self._queues or large_content(completion) is not None:
            self._hold(completion)
        else:
            self._outbox.add_completion(completion, size)

    def add_entry(self, entry: JournalEntry) -> None:
        """Queue a record of a running attempt."""
        key, content = _key(entry.claim), large_content(entry)
        if entry.intent is not None:
            if content is not None:
                entry.packed = self._kept.pop((key, content_hash(content)), None)
            is_held = content is not None and entry.packed is None
        elif entry.checkpoint is not None:
            is_held = key in self._queues
        else:
            is_held = content is not None
        if is_held:
            self._hold(entry)
        else:
            self._outbox.add_entry(entry)

    def add_log(self, row: Sequence[Any], *, can_wait: bool = False) -> None:
        """Queue a piece of a log; with `can_wait` it makes no commit of its own."""
        self._outbox.add_log(row, can_wait=can_wait)

    async def keep(self, claim: Claim, text: str) -> str | None:
        """Store a large request before its intent; return why that is not possible now.

        An intent limits when its effect may begin: that time must not pass while it waits here.
        """
        try:
            packed = await self._pack(text.encode())
        except StoreError as error:
            return error.message
        self._kept[_key(claim), packed.name] = packed
        return None

    def take_all(self) -> tuple[list[JournalEntry], list[Completion]]:
        """Stop waiting; return the entries and completions that wait, in order."""
        if self._connecting is not None:
            self._connecting.cancel()
        for task in self._tasks.values():
            task.cancel()
        held = [part for queue in self._queues.values() for part in queue]
        self._queues, self._tasks, self._held_bytes = {}, {}, 0
        entries = [part for part in held if isinstance(part, JournalEntry)]
        return entries, [part for part in held if isinstance(part, Completion)]

    def forget(self, claim: Claim) -> None:
        """Drop the stored values of an attempt that is over."""
        key = _key(claim)
        for known in [kept for kept in self._kept if kept[0] == key]:
            del self._kept[known]

    async def _connect(self) -> None:
        await self._outages.resume()
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
        if key in self._is_delayed:
            self._record_delay(held)
        if key not in self._tasks:
            self._tasks[key] = asyncio.get_running_loop().create_task(self._send(key, queue))

    async def _send(self, key: _Key, queue: deque[JournalEntry | Completion]) -> None:
        """Store the values of one attempt, and pass on their entries, in order."""
        while queue:
            held = queue[0]
            content = large_content(held)
            if content is not None:
                held.packed = await self._pack_patiently(held)
            queue.popleft()
            self._held_bytes -= len(content or b"")
            if isinstance(held, JournalEntry):
                if key in self._is_delayed:
                    self._record_delay(held, {})
                    self._is_delayed.discard(key)
                self._outbox.add_entry(held)
            else:
                self._returned.discard(key)
                self._outbox.add_completion(held)
            self._wake()
        self._is_delayed.discard(key)
        self._returned.discard(key)
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
                    self._record_delay(held, {"store": store, "error": error.message})
            await self._outages.until_next_try(self._url)

    async def _pack(self, content: bytes) -> PackedContent:
        async with self._at_once:
            return await self._outages.call(
                self._url, lambda: artifact_rows.pack(content, self._blob_store)
            )

    def _record_delay(
        self, held: JournalEntry | Completion, delay: dict[str, Json] | None = None
    ) -> None:
        """Record the value that the step waits for, or that it no longer waits; and whether its attempt is over."""
        has_returned = self._has_completion(_key(held.claim))
        if delay is not None or has_returned:
            alone = WAITS_FOR_STORE if has_returned else None
            entry = JournalEntry(held.claim, held.graph, delay=delay, alone=alone)
            self._outbox.add_entry(entry)
            self._wake()


def _key(claim: Claim) -> _Key:
    return claim.step_id, claim.token
