"""The schema's version: reaching it, and refusing to run on another."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from agent import inode
from agent.store import sqlite
from agent.store.database import Connection, Database, StoreError
from agent.store.dialect import Fault, postgresql_fault, sqlite_fault
from agent.store.gate import GateTimeoutError

if TYPE_CHECKING:
    from sqlalchemy import Engine

HEAD: Final = "0004"
"""The revision that this code runs on; revisions are numbers and grow."""

_ADVISORY_LOCK: Final = 0x6167656E74  # "agent": the key by which migrating processes exclude others
_TABLE: Final = "alembic_version"


def check(database: Database) -> None:
    """Raise `StoreError` unless the database is there and has exactly our schema."""
    with database.connect("reader") as connection:
        revision = current(connection)
    if revision == HEAD:
        return
    if revision is None:
        raise StoreError(Fault.DEFECT, f"{_name(database)} has no tables yet: run `agent init`")
    if _is_newer(revision):
        raise _newer(database, revision)
    raise StoreError(
        Fault.DEFECT,
        f"{_name(database)} has the older schema {revision}, this version needs {HEAD}:"
        " run `agent db upgrade`",
    )


def current(connection: Connection) -> str | None:
    """Return the database's revision; None when it has no tables of ours."""
    if connection.sql.name == "sqlite":
        there = connection.query(
            "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = :name", name=_TABLE
        )
    else:
        there = connection.query(
            "SELECT 1 WHERE to_regclass(CAST(:name AS text)) IS NOT NULL", name=_TABLE
        )
    rows = connection.query(f"SELECT version_num FROM {_TABLE}") if there else []
    return rows[0][0] if rows else None


def upgrade(database: Database) -> None:
    """Bring the database to our schema, making an SQLite file if there is none.

    Safe to call from several processes at once: one migrates, the others wait and find it done.
    """
    if database.path is not None:
        sqlite.create(database.path)
    # Opened for writing, so that a file we may not write is told apart from one that is damaged.
    with database.connect("writer") as connection:
        revision = current(connection)
    if revision == HEAD:
        return
    if revision is not None and _is_newer(revision):
        raise _newer(database, revision)
    if database.path is not None:
        _upgrade_sqlite(database, database.path)
    else:
        _upgrade_postgresql(database)


def _upgrade_sqlite(database: Database, path: Path) -> None:
    from sqlalchemy import create_engine
    from sqlalchemy.pool import NullPool

    # Held open until the migration's own connection is closed: see `agent.inode`.
    file = inode.open_file(path)
    handle = None if database.gate is None else database.gate.open()
    try:
        if handle is not None:
            try:
                handle.take(sqlite.PATIENCE_SECONDS)
            except GateTimeoutError:
                raise StoreError(Fault.BUSY, sqlite.locked(path)) from None
        engine = create_engine(
            "sqlite://",
            module=sqlite.driver().module,
            creator=lambda: sqlite.connect_for_migration(path),
            poolclass=NullPool,
        )
        _run(engine, "BEGIN IMMEDIATE")
    finally:
        if handle is not None:
            handle.close()
        inode.give_back(file)


def _upgrade_postgresql(database: Database) -> None:
    import psycopg
    from sqlalchemy import create_engine
    from sqlalchemy.pool import NullPool

    engine = create_engine(
        "postgresql+psycopg://", creator=lambda: psycopg.connect(database.url), poolclass=NullPool
    )
    _run(engine, f"SELECT pg_advisory_xact_lock({_ADVISORY_LOCK})")


def _run(engine: "Engine", lock: str) -> None:
    """Migrate in one transaction that begins with taking the lock."""
    from alembic import command
    from alembic.config import Config
    from sqlalchemy.exc import DBAPIError

    config = Config()
    config.set_main_option("script_location", "agent.store:migrations")
    config.set_main_option("path_separator", "os")
    try:
        with engine.connect() as connection, connection.begin():
            connection.exec_driver_sql(lock)
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
    except DBAPIError as error:
        raise StoreError(
            _fault(error.orig), f"the schema was not upgraded: {error.orig}"
        ) from error
    finally:
        engine.dispose()


def _fault(error: Any) -> Fault:
    if hasattr(error, "sqlite_errorcode"):
        return sqlite_fault(error.sqlite_errorcode)
    return postgresql_fault(getattr(error, "sqlstate", None))


def _is_newer(revision: str) -> bool:
    return not revision.isdigit() or int(revision) > int(HEAD)


def _newer(database: Database, revision: str) -> StoreError:
    return StoreError(
        Fault.DEFECT,
        f"{_name(database)} has the schema {revision}, newer than this version's {HEAD}:"
        " use the version of agent that made it, or a newer one",
    )


def _name(database: Database) -> str:
    return "the PostgreSQL database" if database.path is None else str(database.path)
