"""Listens to sources that tell when something changed, so that a watcher polls at once.

A listener is a hint: it may miss changes and it may end. Polling alone finds everything.
"""

import asyncio
from typing import Final

import structlog

from agent.core.backoff import Backoff
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


class WatchListeners:
    """The listeners of active watchers; everything here runs in the watchers' event loop."""

    def __init__(self, runner: WatchRunner) -> None:
        self._runner = runner
        self._running: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._seen: set[tuple[str, str]] = set()
        """The ids of watchers with the hashes of their sources, whether they can be listened to or not."""
        self._hinted: set[str] = set()

    async def refresh(self) -> None:
        """Start listeners of new or edited watchers, and stop those of watchers that are not active."""
        wanted, new = await asyncio.to_thread(self._read, set(self._seen))
        for key in self._seen - wanted:
            self._seen.discard(key)
            if (listening := self._running.pop(key, None)) is not None:
                listening.cancel()
        for row in new:
            self._seen.add((row.id, row.timing_hash))
            try:
                listener = listener_of(decode(row.spec))
            except Exception:
                # One definition that this program cannot read must not stop the others.
                log.exception("watcher.unreadable", trigger=row.id)
                continue
            if listener is not None:
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
                log.info("watcher.not_listening", trigger=row.id, error=str(error))
            await asyncio.sleep(backoff.next_seconds())

    def _hint(self, trigger_id: str) -> None:
        if trigger_id not in self._hinted:
            self._hinted.add(trigger_id)
            loop = asyncio.get_running_loop()
            loop.call_later(_SETTLE_SECONDS, self._poll, trigger_id)

    def _poll(self, trigger_id: str) -> None:
        self._hinted.discard(trigger_id)
        self._runner.poll_soon(trigger_id)
