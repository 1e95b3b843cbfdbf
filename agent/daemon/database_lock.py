"""The lock that lets one process at a time run the tasks of a SQLite database."""

import errno
from contextlib import suppress

from agent import bootstrap
from agent.core.files.process_lock import Lock, LockHolder
from agent.store.db.database import Database, StoreError
from agent.store.db.dialect import Fault


class AlreadyRunningError(Exception):
    """Another process runs this database's tasks."""

    def __init__(self, holder: LockHolder | None) -> None:
        who = f" (process {holder.process_id})" if holder and holder.process_id else ""
        super().__init__(f"an agent is already running on this database{who}")


def take_lock(database: Database, role: str) -> Lock | None:
    """Take the database's lock for this process, or raise `AlreadyRunningError`.

    PostgreSQL has no such lock: many workers may run there. The result is None then.
    """
    lock = bootstrap.lock_of(database)
    try:
        if lock is not None and not lock.acquire(role):
            raise AlreadyRunningError(lock.holder())
    except OSError as error:
        # A file opened read-only cannot be locked.
        reason = "it cannot be written" if error.errno == errno.EBADF else error.strerror
        text = f"{database.path} cannot be locked: {reason}"
        raise StoreError(Fault.READONLY, text) from None
    if lock is not None and role == "daemon":
        from agent.store.db import sqlite

        # A full disk or a busy database is for the start itself to wait for or report.
        with suppress(StoreError):
            sqlite.renew_id(database)
    return lock
