"""Deliveries: each channel reads the event log by a cursor of its own.

The cursor moves when the channel has accepted a notification, so a kill repeats at most the last one.
A failed notification holds back those behind it until it is accepted or rejected for good. On
PostgreSQL, where several processes may run the same channel, the one that holds its lease delivers; the
lease of one that has died is free at once.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Final, NoReturn, TypeVar

import structlog

from agent.channels import notifications
from agent.channels.channel import CLOSING_EVENTS, Channel, DeliveryError, Notification, run_to_end
from agent.channels.receive_loop import ReceiveLoop
from agent.core import backoff
from agent.core.clock import SECOND, Clock, to_iso
from agent.core.ids import new_id, random_fraction
from agent.core.redaction import everywhere
from agent.store.channels import cursors as store
from agent.store.channels.cursors import LogPosition
from agent.store.db.database import Connection, Database, StoreError
from agent.tasks.rescue.failure_detector import has_ended

log = structlog.get_logger(__name__)

Result = TypeVar("Result")

POLL_SECONDS: Final = 1.0
"""How often the event log is polled; commits of this process wake the loop at once."""
FIRST_DELAY_SECONDS: Final = 1.0
LONGEST_DELAY_SECONDS: Final = 300.0
_LONGEST_RETRY_AFTER_SECONDS: Final = 3600.0
"""Upper bound of a delay that the other side requests."""
LEASE_SECONDS: Final = 60.0
_SAVE_SECONDS: Final = 60.0
"""How often the cursor is saved when there is nothing to deliver."""
_FOREVER_SECONDS: Final = 1e9
_PAGE: Final = 100
_MAX_OPEN: Final = 1000


def delay_seconds(failures: int, retry_after: float | None, fraction: float) -> float:
    """Return how long to wait after a number of failures in a row, or as the other side requests."""
    if retry_after is not None:
        return min(max(retry_after, 0.1), _LONGEST_RETRY_AFTER_SECONDS)
    delay = backoff.delay_seconds(
        failures, first_seconds=FIRST_DELAY_SECONDS, longest_seconds=LONGEST_DELAY_SECONDS
    )
    return delay * (0.75 + fraction / 2)


class DeliveryLoop:
    """Delivers the notifications of one channel and runs its receive loop."""

    def __init__(
        self,
        database: Database,
        channel: Channel,
        worker_id: Callable[[], str] = str,
        clock: Clock | None = None,
    ) -> None:
        """`worker_id` is the identity of the process's worker, by which others learn that it has died."""
        self._worker_id = worker_id
        self._database = database
        self._channel = channel
        self._clock = clock or database.clock
        self._owner = new_id()
        self._owned_until = 0
        self._position: LogPosition | None = None
        self._opening: tuple[LogPosition, list[Notification]] | None = None
        self._saved_at = 0
        self._news = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"channel-{channel.name}")
        self._connection: Connection | None = None

    def wake(self) -> None:
        """Poll the event log at once."""
        self._news.set()

    async def run(self) -> NoReturn:
        """Deliver and receive until cancelled."""
        receive_loop = ReceiveLoop(self._database, self._channel)
        not_before = 0.0
        try:
            while True:
                self._news.clear()
                pause = POLL_SECONDS
                try:
                    if not await self._call(self._renew_lease):
                        await receive_loop.stop()
                    else:
                        receive_loop.start()
                        # A new event does not shorten the backoff of a failed delivery.
                        if self._clock.monotonic() >= not_before:
                            delay = await self._round()
                            not_before = self._clock.monotonic() + (delay or 0.0)
                except StoreError as error:
                    log.warning("channel.no_database", channel=self._channel.name, error=str(error))
                    pause = 5 * POLL_SECONDS
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._news.wait()
        finally:
            await receive_loop.stop()
            with suppress(StoreError):
                await self._call(self._release)
            self._thread.shutdown(wait=False)

    async def _round(self) -> float | None:
        """Deliver everything up to the end of the log; return the delay after a failure."""
        if self._position is None:
            self._position = await self._call(self._stored_position)
        if self._position is None and (pause := await self._begin()) is not None:
            return pause
        while True:
            page, end = await self._call(self._read)
            for position, notification in page:
                if (
                    pause := await run_to_end(self._deliver_at(position, notification))
                ) is not None:
                    return pause
            self._position = end
            if len(page) < _PAGE:
                await self._call(self._save_position)
                return None

    async def _begin(self) -> float | None:
        """Deliver the open questions to a new channel; return the delay after a failure."""
        # Kept through failures: what happens meanwhile follows once the questions are delivered.
        if self._opening is None:
            self._opening = await self._call(self._open_questions)
        position, questions = self._opening
        while questions:
            if (pause := await run_to_end(self._attempt(questions[0]))) is not None:
                return pause
            del questions[0]
        await self._call(partial(self._move_to, position))
        return None

    async def _deliver_at(
        self, position: LogPosition, notification: Notification | None
    ) -> float | None:
        """Deliver one notification and move the cursor; return the delay after a failure."""
        if notification is not None and (pause := await self._attempt(notification)) is not None:
            return pause
        await self._call(partial(self._move_to, position))
        return None

    async def _attempt(self, notification: Notification) -> float | None:
        """Deliver one notification; return the delay if the delivery is to be retried."""
        deliver = (
            self._channel.update if notification.event in CLOSING_EVENTS else self._channel.deliver
        )
        try:
            await deliver(notification)
        except DeliveryError as error:
            failure = error
        except (StoreError, asyncio.CancelledError):
            raise
        except Exception as error:
            # A defect of the agent must neither end all deliveries nor repeat one without limit.
            log.exception("channel.defect", channel=self._channel.name)
            failure = DeliveryError(f"an internal error: {type(error).__name__}", max_attempts=3)
        else:
            return None
        return await self._call(partial(self._record_failure, notification, failure))

    # The methods below run in the loop's own thread, one at a time.

    def _stored_position(self) -> LogPosition | None:
        cursor = store.cursor(self._reader(), self._channel.name)
        return None if cursor is None or cursor.position == store.NOT_BEGUN else cursor.position

    def _open_questions(self) -> tuple[LogPosition, list[Notification]]:
        connection = self._reader()
        with connection.snapshot():
            # The position first: questions asked from now on are in the log behind it.
            _, position = store.events_after(connection, (0, 0), [], 1)
            return position, notifications.open_questions(connection, _MAX_OPEN)

    def _read(self) -> tuple[list[tuple[LogPosition, Notification | None]], LogPosition]:
        assert self._position is not None
        connection = self._reader()
        with connection.snapshot():
            events, end = store.events_after(
                connection,
                self._position,
                self._channel.events,
                _PAGE,
                self._channel.name if self._channel.reports_ends else None,
            )
            return [
                (event.position, notifications.notification_of(connection, event))
                for event in events
            ], end

    def _move_to(self, position: LogPosition) -> None:
        with self._writer() as tx, tx.transaction():
            store.move(tx, self._channel.name, position, self._clock.now())
        self._position, self._saved_at = position, self._clock.now()

    def _save_position(self) -> None:
        """Save the cursor now and then, so that a restart does not read far back."""
        if (
            self._clock.now() - self._saved_at > _SAVE_SECONDS * SECOND
            and self._position is not None
        ):
            self._move_to(self._position)

    def _record_failure(self, notification: Notification, error: DeliveryError) -> float | None:
        """Record a failure; return the delay, or None when the notification is given up."""
        name = self._channel.name
        text = everywhere.redact(str(error))
        before = store.cursor(self._reader(), name)
        failures = 1 + (before.failures if before is not None else 0)
        is_given_up = error.max_attempts is not None and failures >= error.max_attempts
        now = self._clock.now()
        seconds = delay_seconds(failures, error.retry_after_seconds, random_fraction())
        with self._writer() as tx, tx.transaction():
            store.fail(tx, name, text, now + int(seconds * SECOND), now)
            if failures == 1 or is_given_up:
                data = {
                    "channel": name,
                    "notice": notification.id,
                    "event": notification.event,
                    "task": None if notification.task is None else notification.task["id"],
                    "error": text[: store.MAX_ERROR],
                    "given_up": is_given_up,
                }
                store.emit_failure(tx, data, now)
        log.warning(
            "delivery.failed",
            channel=name,
            event_told=notification.event,
            error=text,
            failures=failures,
            retry_at=None if is_given_up else to_iso(now + int(seconds * SECOND)),
        )
        return None if is_given_up else seconds

    def _renew_lease(self) -> bool:
        """Take or renew the lease of the channel; on SQLite there is only one process."""
        now = self._clock.now()
        # A worker has its identity only once it runs, and may get another one.
        is_same = self._owner == (self._worker_id() or self._owner)
        if is_same and self._owned_until - now > LEASE_SECONDS * SECOND / 2:
            return True
        until = now + int(
            (_FOREVER_SECONDS if self._database.is_sqlite else LEASE_SECONDS) * SECOND
        )
        with self._writer() as tx, tx.transaction():
            store.start(tx, self._channel.name, now)
            is_ours = self._database.is_sqlite or self._own(tx, now, until)
        if not is_ours:
            # The process that holds the lease moves the cursor.
            self._position = None
        self._owned_until = until if is_ours else 0
        return is_ours

    def _own(self, tx: Connection, now: int, until: int) -> bool:
        name = self._channel.name
        # Without a worker, no one learns that this process has died before the lease expires.
        before, self._owner = self._owner, self._worker_id() or self._owner
        holder = store.owner_of(tx, name)
        is_free = holder is not None and (holder == before or has_ended(tx, holder))
        return store.own(tx, name, self._owner, until, now, holder if is_free else None)

    def _release(self) -> None:
        try:
            if not self._database.is_sqlite:
                with self._writer() as tx, tx.transaction():
                    store.disown(tx, self._channel.name, self._owner)
        finally:
            self._disconnect()

    def _reader(self) -> Connection:
        if self._connection is None:
            self._connection = self._database.connect("reader")
        return self._connection

    def _writer(self) -> Connection:
        return self._database.connect("writer")

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def _call(self, function: Callable[[], Result]) -> Result:
        def run() -> Result:
            try:
                return function()
            except StoreError:
                # The connection may be broken; the next poll opens a new one.
                self._disconnect()
                raise

        return await asyncio.get_running_loop().run_in_executor(self._thread, run)
