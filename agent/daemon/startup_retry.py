"""A start that waits out what passes: a lost session or a statement that took too long is no reason to end.

A worker that runs repeats what failed for such a reason; one that starts must not be worse off. What
does not pass by itself, as a wrong address or a schema of another version, ends the start at once.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final, TypeVar

import structlog

from agent import bootstrap, recovery
from agent.config.settings import Settings
from agent.core.backoff import Backoff
from agent.store.db.database import CommitUnknownError, Database, StoreError
from agent.store.db.dialect import Fault
from agent.store.schema.migrate import OlderWorkersError

log = structlog.get_logger(__name__)

Result = TypeVar("Result")

FIRST_PAUSE_SECONDS: Final = 0.2
LONGEST_PAUSE_SECONDS: Final = 5.0
_PROBE_PAUSES: Final = (0.2, 0.5, 1.0)


def open_database(settings: Settings) -> Database:
    """Open, make or upgrade the database for a process that is to stay."""
    backoff = Backoff(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
    while True:
        try:
            return bootstrap.open_database(settings, create=True)
        except StoreError as error:
            # A server that cannot be reached at all is a wrong address as likely as an outage.
            is_passing = error.fault is Fault.BUSY or (
                error.fault is Fault.LOST and _answers(settings)
            )
            if not is_passing or isinstance(error, OlderWorkersError):
                raise
            time.sleep(_pause_after(error, backoff))


async def patiently(work: Callable[[], Result], *, may_be_done_twice: bool) -> Result:
    """Do in a thread what needs the database, and again after what passes."""
    backoff = Backoff(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
    while True:
        try:
            return await asyncio.to_thread(work)
        except StoreError as error:
            is_unknown = isinstance(error, CommitUnknownError) and not may_be_done_twice
            if is_unknown or not error.fault.is_transient:
                raise
            await asyncio.sleep(_pause_after(error, backoff))


async def recover(database: Database) -> None:
    """Run the startup pass to its end; one that was interrupted is run again."""
    await patiently(lambda: recovery.recover(database, database.clock), may_be_done_twice=True)


def _pause_after(error: StoreError, backoff: Backoff) -> float:
    """Log a failure and return how many seconds to wait after it."""
    seconds = backoff.next_seconds()
    log.warning("start.repeated", fault=str(error.fault), error=error.message, seconds=seconds)
    return seconds


def _answers(settings: Settings) -> bool:
    """Whether a PostgreSQL server can be reached after all."""
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
