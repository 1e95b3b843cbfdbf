"""Retries during startup, for faults that pass: a lost session, a busy or full database.

A running worker retries after such faults, and so must one that starts. A fault that does not pass
by itself, such as a wrong address or a schema of another version, ends the start at once.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final, TypeVar

import structlog

from agent import bootstrap, recovery
from agent.config.settings import Settings
from agent.core.backoff import Backoff
from agent.steps.attempt.services import Limits
from agent.store.db.database import CommitUnknownError, Database, StoreError
from agent.store.db.dialect import Fault
from agent.store.schema.migrate import OlderWorkersError

log = structlog.get_logger(__name__)

Result = TypeVar("Result")

FIRST_PAUSE_SECONDS: Final = 0.2
LONGEST_PAUSE_SECONDS: Final = 5.0
_PROBE_PAUSES: Final = (0.2, 0.5, 1.0)


def open_database(settings: Settings, on_note: Callable[[str], None] | None = None) -> Database:
    """Open, create or upgrade the database, for a long-running process.

    It waits for a server that is starting, and says so. A server that never responded may be a wrong
    address.
    """
    backoff = Backoff(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
    has_noted = False
    while True:
        try:
            return bootstrap.open_database(settings, create=True, on_note=on_note)
        except StoreError as error:
            is_starting = error.fault is Fault.LOST and _is_starting(settings, has_noted)
            is_transient = is_starting or (
                error.fault is Fault.BUSY or (error.fault is Fault.LOST and _responds(settings))
            )
            if not is_transient or isinstance(error, OlderWorkersError):
                raise
            if is_starting and on_note is not None and not has_noted:
                on_note(f"waiting for the database: {error.message}")
            has_noted = has_noted or is_starting
            time.sleep(_pause_after(error, backoff))


async def with_retries(work: Callable[[], Result], *, is_idempotent: bool) -> Result:
    """Run `work` in a thread; retry after transient faults of the database."""
    backoff = Backoff(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
    while True:
        try:
            return await asyncio.to_thread(work)
        except StoreError as error:
            is_unknown = isinstance(error, CommitUnknownError) and not is_idempotent
            if is_unknown or not error.fault.is_transient:
                raise
            await asyncio.sleep(_pause_after(error, backoff))


async def recover(database: Database, limits: Limits | None = None) -> None:
    """Run the recovery pass; run it again if it was interrupted."""
    await with_retries(
        lambda: recovery.recover(database, database.clock, limits), is_idempotent=True
    )


def _pause_after(error: StoreError, backoff: Backoff) -> float:
    """Log a failure and return the seconds to wait before the retry."""
    seconds = backoff.next_seconds()
    log.warning("start.repeated", fault=str(error.fault), error=error.message, seconds=seconds)
    return seconds


def _is_starting(settings: Settings, was_starting: bool) -> bool:
    if Database(settings.database_url).is_sqlite:
        return False
    from agent.store.db import postgres

    return postgres.is_starting(settings.database_url, was_starting=was_starting)


def _responds(settings: Settings) -> bool:
    """Whether a PostgreSQL server responds to one of a few probes."""
    database = Database(settings.database_url)
    if database.is_sqlite:
        return False
    for pause in _PROBE_PAUSES:
        time.sleep(pause)
        try:
            with database.connect("reader") as connection:
                connection.check()
        except StoreError:
            continue
        return True
    return False
