"""Listens to sources that tell when something changed, so that a watcher polls at once.

A listener is a hint: it may miss changes and it may end. Polling alone finds everything.
"""

import asyncio
from typing import Final

import structlog

from agent.core.backoff import Backoff
from agent.store.db.database import StoreError
from agent.store.db.json_values import decode
from agent.store.engine import trigger_rows
from agent.store.engine.trigger_rows import TriggerRow
from agent.triggers.watch_runner import WatchRunner
from agent.triggers.watchers.registry import listener_of
from agent.triggers.watchers.source import Listener

log = structlog.get_logger(__name__)

_SETTLE_SECONDS: Final = 0.2
"""Several hints within this time are one poll."""
_FIRST_RETRY_SECONDS: Final = 5.0
_LONGEST_RETRY_SECONDS: Final = 600.0
_RECORD_SECONDS: Final = 1.0
"""Several changes within this time are recorded by one transaction."""


class WatchListeners:
    """The listeners of active watchers; everything here runs in the watchers' event loop."""

    def __init__(self, runner: WatchRunner) -> None:
        self._runner = runner
        self._running: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._seen: set[tuple[str, str]] = set()
        """The ids of watchers with the hashes of their sources, whether they can be listened to or not."""
        self._hinted: set[str] = set()
        self._reasons: dict[str, str | None] = {}
        """Why each watcher is only polled, as the database has it or will have it soon."""
        self._unrecorded: dict[str, str | None] = {}
        self._recording: asyncio.Task[None] | None = None

    async def refresh(self) -> None:
        """Start listeners of new or edited watchers, and stop those of watchers that are not active."""
        wanted, new = await asyncio.to_thread(self._read, set(self._seen))
        for key in self._seen - wanted:
            self._seen.discard(key)
            if (listening := self._running.pop(key, None)) is not None:
                listening.cancel()
        for row in new:
            self._seen.add((row.id, row.timing_hash))
            self._reasons[row.id] = row.not_listening
            try:
                listener = listener_of(decode(row.spec))
            except Exception:
                # One definition that this program cannot read must not stop the others.
                log.exception("watcher.unreadable", trigger=row.id)
                continue
            if listener is None:
                self._note(row.id, None)
            else:
                listening = asyncio.create_task(self._listen(row, listener))
                self._running[(row.id, row.timing_hash)] = listening

    def _read(self, seen: set[tuple[str, str]]) -> tuple[set[tuple[str, str]], list[TriggerRow]]:
        """Return the keys of all active watchers, and the rows of those that were not seen before."""
        with self._runner.reader.connect() as connection:
            wanted = set(trigger_rows.active_watchers(connection))
            ids = sorted({trigger_id for trigger_id, _ in wanted - seen})
            rows = trigger_rows.find_all(connection, ids)
        # A row may have changed between the two reads: the next refresh takes it.
        return wanted, [row for row in rows if (row.id, row.timing_hash) in wanted - seen]

    async def _listen(self, row: TriggerRow, listener: Listener) -> None:
        """Listen until cancelled; start again after an error."""
        backoff = Backoff(_FIRST_RETRY_SECONDS, _LONGEST_RETRY_SECONDS)
        while True:
            try:
                context = await asyncio.to_thread(self._runner.context_of, row, decode(row.spec))
                await listener.listen(context, lambda: self._hint(row.id))
                return
            except Exception as error:
                reason = str(error) or type(error).__name__
                if self._note(row.id, reason):
                    log.info("watcher.not_listening", trigger=row.id, error=reason)
            await asyncio.sleep(backoff.next_seconds())

    def _note(self, trigger_id: str, reason: str | None) -> bool:
        """Record why a watcher is only polled, for `doctor`; return whether that is news."""
        if self._reasons.get(trigger_id) == reason:
            return False
        self._reasons[trigger_id] = self._unrecorded[trigger_id] = reason
        if self._recording is None or self._recording.done():
            self._recording = asyncio.create_task(self._record())
        return True

    async def _record(self) -> None:
        while self._unrecorded:
            await asyncio.sleep(_RECORD_SECONDS)
            reasons, self._unrecorded = self._unrecorded, {}
            try:
                await asyncio.to_thread(self._write, reasons)
            except StoreError as error:
                log.warning("watchers.not_recorded", error=error.message)
                self._unrecorded = reasons | self._unrecorded

    def _write(self, reasons: dict[str, str | None]) -> None:
        with self._runner.database.connect("writer") as tx, tx.transaction():
            trigger_rows.set_listening(tx, reasons)

    def _hint(self, trigger_id: str) -> None:
        # A listener wakes its watcher when it begins to listen: it does.
        self._note(trigger_id, None)
        if trigger_id not in self._hinted:
            self._hinted.add(trigger_id)
            loop = asyncio.get_running_loop()
            loop.call_later(_SETTLE_SECONDS, self._poll, trigger_id)

    def _poll(self, trigger_id: str) -> None:
        self._hinted.discard(trigger_id)
        self._runner.poll_soon(trigger_id)
