"""Reception: a channel is listened to for as long as it is ours, whatever goes wrong with it."""

import asyncio
from typing import Final

import structlog

from agent.channels.channel import Channel, ReceiveError
from agent.core.backoff import Backoff
from agent.core.redaction import everywhere
from agent.store.channels import cursors as store
from agent.store.db.database import Database, StoreError

log = structlog.get_logger(__name__)

FIRST_PAUSE_SECONDS: Final = 1.0
LONGEST_PAUSE_SECONDS: Final = 60.0


class ReceiveLoop:
    """Takes what people say in one channel; what keeps it from that is logged and on record."""

    def __init__(self, database: Database, channel: Channel) -> None:
        self._database = database
        self._channel = channel
        self._task: asyncio.Task[None] | None = None
        self._trouble: str | None = None

    def begin(self) -> None:
        """Listen, if it does not yet."""
        if self._task is None:
            self._task = asyncio.create_task(self._run())

    async def end(self) -> None:
        """Listen no longer."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _run(self) -> None:
        backoff = Backoff(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
        # What an earlier process had to say of it is no longer true.
        await self._record(None)
        while True:
            asked: float | None = None
            try:
                if not await self._channel.receive():
                    return
                backoff.reset()
                if self._trouble is not None:
                    log.info("channel.heard_again", channel=self._channel.name)
                    await self._record(None)
                continue
            except ReceiveError as error:
                trouble, asked = str(error), error.retry_after_seconds
            except StoreError as error:
                trouble = f"the database: {error}"
            except Exception as error:
                log.exception("channel.defect", channel=self._channel.name)
                trouble = f"an internal error: {type(error).__name__}"
            pause = backoff.next_seconds()
            wait = asked or pause
            log.warning(
                "channel.not_heard", channel=self._channel.name, error=trouble, retry_seconds=wait
            )
            await self._record(trouble)
            await asyncio.sleep(wait)

    async def _record(self, trouble: str | None) -> None:
        try:
            await asyncio.to_thread(record_trouble, self._database, self._channel.name, trouble)
        except StoreError as error:
            log.warning("channel.no_database", channel=self._channel.name, error=str(error))
        self._trouble = trouble


def record_trouble(database: Database, channel: str, trouble: str | None) -> None:
    """Put on record, for `agent doctor`, what keeps a channel from being used."""
    trouble = None if trouble is None else everywhere.redact(trouble)
    now = database.clock.now()
    with database.connect("writer") as tx, tx.transaction():
        store.start(tx, channel, now)
        store.set_trouble(tx, channel, trouble, now)
