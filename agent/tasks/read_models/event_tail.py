"""The event tail: every event of the log, in commit order, for listeners in this process.

Events are committed by this process's worker, by operators' commands in other threads and
processes, by recovery, by the loops beside the worker and, on PostgreSQL, by other workers. Only the
log has all of them in order, so one thread reads it by cursor. A worker's commits and notifications
wake that thread; a poll finds commits that sent no notification.

Listeners run in the tail's thread. Each gets every event once, from the cursor that `open` returned.
An outage of the database delays events and loses none: the cursor moves only when a page was read.
"""

import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

import structlog

from agent.core.backoff import Backoff
from agent.store import event_log
from agent.store.channels.cursors import LogPosition
from agent.store.db.database import Connection, Database, StoreError
from agent.store.read import views

log = structlog.get_logger(__name__)

Event = tuple[Any, ...]
"""(task id, number, type, step id, attempt, at, data), as the log holds it."""
Listener = Callable[[list[Event]], None]

BATCH_SECONDS: Final = 0.05
"""The least time between two reads: under load one read carries many commits."""
_POLL_SECONDS: Final = 1.0
_LONGEST_PAUSE_SECONDS: Final = 5.0
_PAGE: Final = 1000
_LAST_SECONDS: Final = 2.0


class EventTail:
    """Reads the log behind every commit and passes events to listeners."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._connection: Connection | None = None
        self._listeners: list[tuple[Listener, frozenset[str] | None]] = []
        self._position: LogPosition | None = None
        self._wakeup = threading.Event()
        self._is_stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def subscribe(self, listener: Listener, types: Iterable[str] | None = None) -> None:
        """Pass events of these types to a listener, or all of them.

        What a listener raises is logged; the others still get the events.
        """
        self._listeners = [
            *self._listeners,
            (listener, None if types is None else frozenset(types)),
        ]

    def open(self) -> LogPosition:
        """Begin after the end of the log, and return that cursor."""
        with self._database.connect("reader") as connection, connection.snapshot():
            self._position = views.latest_event(connection)
        return self._position

    def start(self) -> None:
        """Begin to read."""
        if self._position is None:
            self.open()
        self._thread = threading.Thread(target=self._run, name="event-tail", daemon=True)
        self._thread.start()

    def wake(self, _events: object = None) -> None:
        """Read soon: something may have been committed. Any thread may call this."""
        if not self._wakeup.is_set():
            self._wakeup.set()

    def stop(self) -> None:
        """Pass on what is committed by now, and end; blocks for a bounded time."""
        self._is_stopping.set()
        self._wakeup.set()
        if self._thread is not None:
            self._thread.join(_LAST_SECONDS)

    def _run(self) -> None:
        idle = Backoff(2 * BATCH_SECONDS, _POLL_SECONDS)
        failing = Backoff(_POLL_SECONDS, _LONGEST_PAUSE_SECONDS)
        while True:
            is_last = self._is_stopping.is_set()
            self._wakeup.clear()
            began = time.monotonic()
            try:
                # On PostgreSQL a commit becomes readable when every older transaction has ended:
                # after a wakeup the next reads follow soon, then ever more slowly.
                if self._read_all():
                    idle.reset()
                    pause = BATCH_SECONDS
                else:
                    pause = idle.next_seconds()
                failing.reset()
            except StoreError as error:
                log.warning("events.unreadable", fault=str(error.fault), error=error.message)
                self._disconnect()
                pause = failing.next_seconds()
            if is_last:
                break
            if failing.failures:
                # Not for the next commit: commits may go on, twenty a second, while reads fail.
                self._is_stopping.wait(pause)
            elif self._wakeup.wait(pause):
                idle.reset()
                self._is_stopping.wait(max(0.0, began + BATCH_SECONDS - time.monotonic()))
        self._disconnect()

    def _read_all(self) -> bool:
        """Read page after page up to the end of the log; return whether there was anything."""
        assert self._position is not None
        has_found = False
        while True:
            wanted = [types for _, types in self._listeners]
            types = None if None in wanted else frozenset().union(*filter(None, wanted))
            if self._connection is None:
                self._connection = self._database.connect("reader")
            with self._connection.snapshot():
                events, position = event_log.events_after(
                    self._connection, self._position, types, _PAGE
                )
            has_found = has_found or position != self._position
            self._position = position
            if events:
                self._pass_on(events)
            if len(events) < _PAGE:
                return has_found

    def _pass_on(self, events: list[Event]) -> None:
        for listener, types in self._listeners:
            own = events if types is None else [event for event in events if event[2] in types]
            if not own:
                continue
            try:
                listener(own)
            except Exception:
                log.exception("listener.failed")

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
