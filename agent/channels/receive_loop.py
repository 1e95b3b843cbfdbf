"""Receiving: one loop per channel, which retries with backoff whatever fails."""

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
    """Receives the messages of one channel; failures are logged and recorded for `agent doctor`."""

    def __init__(self, database: Database, channel: Channel) -> None:
        self._database = database
        self._channel = channel
        self._task: asyncio.Task[None] | None = None
        self._trouble: str | None = None

    def start(self) -> None:
        """Start to receive, unless it runs already."""
        if self._task is None:
            self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Stop to receive."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _run(self) -> None:
        backoff = Backoff(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
        # The problem that an earlier process recorded is out of date.
        await self._record(None)
        while True:
            retry_after_seconds: float | None = None
            try:
                if not await self._channel.receive():
                    return
                backoff.reset()
                if self._trouble is not None:
                    log.info("channel.heard_again", channel=self._channel.name)
                    await self._record(None)
                continue
            except ReceiveError as error:
                trouble, retry_after_seconds = str(error), error.retry_after_seconds
            except StoreError as error:
                trouble = f"the database: {error}"
            except Exception as error:
                log.exception("channel.defect", channel=self._channel.name)
                trouble = f"an internal error: {type(error).__name__}"
            backoff_seconds = backoff.next_seconds()
            wait = retry_after_seconds or backoff_seconds
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
    """Record, for `agent doctor`, why a channel cannot be used; None: it can."""
    trouble = None if trouble is None else everywhere.redact(trouble)
    now = database.clock.now()
    with database.connect("writer") as tx, tx.transaction():
        store.start(tx, channel, now)
        store.set_trouble(tx, channel, trouble, now)
