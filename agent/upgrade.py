"""Upgrade of a database that workers of earlier versions may still use.

If a migration is pending, every live worker has an earlier version: one of this version would have
upgraded first. On SQLite the daemon must be stopped. On PostgreSQL workers go on during and after a
compatible migration (those from before schema 0011 stop when they notice it, and are named here); a
breaking one is refused while one of them is alive. Fencing declares them all dead in the migration's
own transaction.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from agent.core.files.process_lock import LockHolder
from agent.store.db.database import Connection, Database, StoreError
from agent.store.db.dialect import Fault
from agent.store.schema import migrate

_CHECKS_PER_LEASE: Final = 20


def upgrade(
    database: Database,
    *,
    lease_seconds: float,
    holder: LockHolder | None = None,
    must_fence: bool = False,
    on_note: Callable[[str], None] | None = None,
    backups: Callable[[], Path | None] = lambda: None,
) -> None:
    """Bring the database to our schema; raise `OlderWorkersError` if live workers forbid it.

    `holder` is the process that runs a SQLite database. `on_note` receives messages for the operator: why
    it waits, up to one lease, and which workers will end. A SQLite database is first copied to the directory of `backups`, if any.
    """
    revision = _revision(database)
    if revision is None or not migrate.is_older(revision):
        migrate.upgrade(database)
        return
    if database.is_sqlite and (must_fence or holder is None):
        directory = backups()
        if directory is not None:
            _back_up(database, directory)
    if must_fence:
        _note_workers(database, on_note, "declared dead, and will end")
        migrate.upgrade(database, "fence")
    elif holder is not None:
        raise migrate.OlderWorkersError(
            Fault.BUSY,
            f"an agent of an earlier version (process {holder.process_id}, schema {revision}) runs"
            f" on this database: stop it, then upgrade to schema {migrate.HEAD}",
        )
    elif not database.is_sqlite and migrate.is_breaking(revision):
        _wait_for_deaths(database, revision, lease_seconds, on_note)
        migrate.upgrade(database, "refuse")
    else:
        # Before they have noticed.
        if not database.is_sqlite and migrate.ends_workers(revision):
            _note_workers(
                database,
                on_note,
                f"workers of schema {revision} will end and release their steps; start them again"
                " with this version",
            )
        migrate.upgrade(database)


def _back_up(database: Database, directory: Path) -> None:
    """Copy a SQLite database before its schema changes: an earlier version cannot read it after that."""
    import structlog

    from agent.store import backup

    try:
        contents = backup.write_verified(
            database, directory, database.clock.now(), before=migrate.HEAD
        )
    except StoreError as error:
        raise StoreError(
            error.fault,
            f"the database was not upgraded, because it could not be backed up: {error.message}"
            " (before_upgrade = false in [backup] upgrades it without a backup)",
        ) from None
    structlog.get_logger(__name__).info(
        "database.backed_up", file=str(contents.path), schema=contents.schema
    )
    backup.rotate(directory, keep=sys.maxsize)


def _revision(database: Database) -> str | None:
    if database.path is not None and not database.path.exists():
        return None
    # As a writer: that distinguishes a file without write permission from a damaged one.
    with database.connect("writer") as connection:
        return migrate.current(connection)


def _wait_for_deaths(
    database: Database,
    revision: str,
    lease_seconds: float,
    on_note: Callable[[str], None] | None,
) -> None:
    """Return when every worker is dead; raise as soon as one is seen alive."""
    import socket
    import time

    from agent.steps.process.processes import is_running
    from agent.store.engine import workers
    from agent.tasks.rescue.failure_detector import FailureDetector

    detector = FailureDetector(lease_seconds)
    with database.connect("writer") as connection:
        first: dict[str, int] = {}
        while alive := workers.live_workers(connection):
            silent: list[tuple[str, int]] = []
            for worker_id, tx_number, host, process_id, started in alive:
                is_here = host == socket.gethostname()
                if is_here and not is_running(process_id, started):
                    silent.append((worker_id, tx_number))
                elif is_here or tx_number != first.setdefault(worker_id, tx_number):
                    raise migrate.OlderWorkersError(
                        Fault.BUSY,
                        f"a worker of an earlier version is alive (process {process_id} on {host},"
                        f" schema {revision}) and could not go on after the upgrade to schema"
                        f" {migrate.HEAD}: stop it, or fence it with `agent db upgrade --force`",
                    )
            tx_numbers = [(worker_id, tx_number) for worker_id, tx_number, *_ in alive]
            silent += detector.observe(tx_numbers, database.clock.monotonic())
            if silent:
                _declare_dead(connection, silent, database.clock.now())
                continue
            if on_note is not None:
                hosts = ", ".join(sorted({str(row[2]) for row in alive}))
                on_note(
                    f"waiting up to {lease_seconds:g} s to see whether workers on {hosts} are alive"
                )
                on_note = None
            time.sleep(lease_seconds / _CHECKS_PER_LEASE)


def _note_workers(database: Database, on_note: Callable[[str], None] | None, about: str) -> None:
    """Name the workers that are recorded as alive."""
    from agent.store.engine import workers

    with database.connect("reader") as connection:
        alive = workers.live_workers(connection)
    if alive and on_note is not None:
        on_note(", ".join(f"process {row[3]} on {row[2]}" for row in alive) + f": {about}")


def _declare_dead(connection: Connection, silent: list[tuple[str, int]], now: int) -> None:
    from agent.store.engine import workers

    for worker_id, tx_number in silent:
        with connection.transaction():
            workers.declare_dead(connection, worker_id, tx_number, now)
