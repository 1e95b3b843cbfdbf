"""Deliveries: each channel reads the event log at its own pace, and forgets nothing.

The cursor moves when a notification was taken, so that a kill repeats the last one at worst. A notification that
fails holds back those behind it, in order, until it is taken or the other side has refused it for
good. On PostgreSQL, where several processes may have the same channel, one of them delivers.
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
from agent.store.channels.cursors import Place
from agent.store.db.database import Connection, Database, StoreError

log = structlog.get_logger(__name__)

Result = TypeVar("Result")

POLL_SECONDS: Final = 1.0
"""How often the log is looked at; what this process commits itself wakes at once."""
FIRST_DELAY_SECONDS: Final = 1.0
LONGEST_DELAY_SECONDS: Final = 300.0
_MOST_ASKED_SECONDS: Final = 3600.0
"""How long the other side may put us off at a time."""
OWNED_SECONDS: Final = 60.0
_KEEP_SECONDS: Final = 60.0
"""How often the cursor is written where nothing was to be told."""
_FOR_GOOD: Final = 1e9
_PAGE: Final = 100
_MOST_OPEN: Final = 1000


def delay_seconds(failures: int, asked_for: float | None, fraction: float) -> float:
    """Return how long to wait after so many failures in a row: twice as long each time."""
    if asked_for is not None:
        return min(max(asked_for, 0.1), _MOST_ASKED_SECONDS)
    delay = backoff.delay_seconds(
        failures, first_seconds=FIRST_DELAY_SECONDS, longest_seconds=LONGEST_DELAY_SECONDS
    )
    return delay * (0.75 + fraction / 2)


class DeliveryLoop:
    """Brings one channel what it is to tell."""

    def __init__(self, database: Database, channel: Channel, clock: Clock | None = None) -> None:
        self._database = database
        self._channel = channel
        self._clock = clock or database.clock
        self._owner = new_id()
        self._owned_until = 0
        self._place: Place | None = None
        self._kept_at = 0
        self._news = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"channel-{channel.name}")
        self._connection: Connection | None = None

    def wake(self) -> None:
        """Look at the log at once."""
        self._news.set()

    async def run(self) -> NoReturn:
        """Deliver until cancelled; what comes in is taken meanwhile."""
        reception = ReceiveLoop(self._database, self._channel)
        not_before = 0.0
        try:
            while True:
                self._news.clear()
                pause = POLL_SECONDS
                try:
                    if not await self._call(self._own):
                        await reception.end()
                    else:
                        reception.begin()
                        # What fails is not tried again sooner because something else has happened.
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
            await reception.end()
            with suppress(StoreError):
                await self._call(self._leave)
            self._thread.shutdown(wait=False)

    async def _round(self) -> float | None:
        """Deliver what there is; return after how many seconds to try again what failed."""
        if self._place is None:
            self._place = await self._call(self._known)
        if self._place is None and (pause := await self._begin()) is not None:
            return pause
        while True:
            found, end = await self._call(self._read)
            for place, notification in found:
                if (pause := await run_to_end(self._pass_on(place, notification))) is not None:
                    return pause
            is_all = len(found) < _PAGE
            self._place = end
            if is_all:
                await self._call(self._keep)
                return None

    async def _begin(self) -> float | None:
        """Tell a new channel what is open already; return how long to wait if that fails."""
        place, opened = await self._call(self._opened)
        for notification in opened:
            if (pause := await run_to_end(self._hand_over(notification))) is not None:
                return pause
        await self._call(partial(self._done, place))
        return None

    async def _pass_on(self, place: Place, notification: Notification | None) -> float | None:
        """Deliver one notification, and be done with it; return how long to wait if that fails."""
        if notification is not None and (pause := await self._hand_over(notification)) is not None:
            return pause
        await self._call(partial(self._done, place))
        return None

    async def _hand_over(self, notification: Notification) -> float | None:
        """Deliver one notification; return how long to wait if that has to be tried again."""
        act = (
            self._channel.update if notification.event in CLOSING_EVENTS else self._channel.deliver
        )
        try:
            await act(notification)
        except DeliveryError as error:
            failed = error
        except (StoreError, asyncio.CancelledError):
            raise
        except Exception as error:
            # A defect of ours must not end all deliveries, nor repeat one for ever.
            log.exception("channel.defect", channel=self._channel.name)
            failed = DeliveryError(f"an internal error: {type(error).__name__}", max_attempts=3)
        else:
            return None
        return await self._call(partial(self._failed, notification, failed))

    # What follows runs in the loop's own thread, one at a time.

    def _known(self) -> Place | None:
        found = store.cursor(self._reader(), self._channel.name)
        return None if found is None or found.place == store.NOT_BEGUN else found.place

    def _opened(self) -> tuple[Place, list[Notification]]:
        connection = self._reader()
        with connection.snapshot():
            # The place first: what is asked from here on is in the log behind it.
            _, place = store.events_after(connection, (0, 0), [], 1)
            return place, notifications.open_questions(connection, _MOST_OPEN)

    def _read(self) -> tuple[list[tuple[Place, Notification | None]], Place]:
        assert self._place is not None
        connection = self._reader()
        with connection.snapshot():
            found, end = store.events_after(connection, self._place, self._channel.events, _PAGE)
            return [
                (event.place, notifications.notification_of(connection, event)) for event in found
            ], end

    def _done(self, place: Place) -> None:
        with self._writing() as tx, tx.transaction():
            store.move(tx, self._channel.name, place, self._clock.now())
        self._place, self._kept_at = place, self._clock.now()

    def _keep(self) -> None:
        """Write the cursor once in a while, so that a restart need not read far back."""
        if self._clock.now() - self._kept_at > _KEEP_SECONDS * SECOND and self._place is not None:
            self._done(self._place)

    def _failed(self, notification: Notification, error: DeliveryError) -> float | None:
        """Record a failure; return how long to wait, or None when the notification is given up."""
        name = self._channel.name
        text = everywhere.redact(str(error))
        before = store.cursor(self._reader(), name)
        failures = 1 + (before.failures if before is not None else 0)
        is_given_up = error.max_attempts is not None and failures >= error.max_attempts
        now = self._clock.now()
        seconds = delay_seconds(failures, error.retry_after_seconds, random_fraction())
        with self._writing() as tx, tx.transaction():
            store.fail(tx, name, text, now + int(seconds * SECOND), now)
            if failures == 1 or is_given_up:
                told = {
                    "channel": name,
                    "notice": notification.id,
                    "event": notification.event,
                    "task": None if notification.task is None else notification.task["id"],
                    "error": text[: store.MAX_ERROR],
                    "given_up": is_given_up,
                }
                store.emit_failure(tx, told, now)
        log.warning(
            "delivery.failed",
            channel=name,
            event_told=notification.event,
            error=text,
            failures=failures,
            retry_at=None if is_given_up else to_iso(now + int(seconds * SECOND)),
        )
        return None if is_given_up else seconds

    def _own(self) -> bool:
        """Whether this process is the one that delivers; on SQLite there is only one."""
        now = self._clock.now()
        if self._owned_until - now > OWNED_SECONDS * SECOND / 2:
            return True
        # For good where nobody else can be.
        until = now + int((_FOR_GOOD if self._database.is_sqlite else OWNED_SECONDS) * SECOND)
        with self._writing() as tx, tx.transaction():
            store.start(tx, self._channel.name, now)
            is_ours = self._database.is_sqlite or store.own(
                tx, self._channel.name, self._owner, until, now
            )
        if not is_ours:
            # Whoever delivers now moves the cursor.
            self._place = None
        self._owned_until = until if is_ours else 0
        return is_ours

    def _leave(self) -> None:
        try:
            if not self._database.is_sqlite:
                with self._writing() as tx, tx.transaction():
                    store.disown(tx, self._channel.name, self._owner)
        finally:
            self._disconnect()

    def _reader(self) -> Connection:
        if self._connection is None:
            self._connection = self._database.connect("reader")
        return self._connection

    def _writing(self) -> Connection:
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
                # It may be the connection that is broken; the next look makes a new one.
                self._disconnect()
                raise

        return await asyncio.get_running_loop().run_in_executor(self._thread, run)
