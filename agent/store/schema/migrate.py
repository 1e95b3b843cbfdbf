"""Upgrades a database to the schema's version, and refuses to run on another.

Workers of the version before may be running while the schema is upgraded. So a revision adds tables,
columns that are nullable or have a default, and indexes; it drops, renames and tightens nothing. One
that must is listed in `BREAKING`: it waits until no older worker is alive, or fences them.
"""

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from agent.core.files import database_file
from agent.store.db import sqlite, sqlite_driver, sqlite_errors
from agent.store.db.database import Connection, Database, StoreError
from agent.store.db.dialect import Fault, Sql, postgresql_fault, sqlite_fault
from agent.store.db.write_lock import WriteLockTimeoutError

if TYPE_CHECKING:
    import sqlalchemy

HEAD: Final = "0012"
"""The revision that this code runs on; revisions are numbers and grow."""
BREAKING: frozenset[str] = frozenset()
"""Revisions that workers of earlier versions cannot run on.

Versions from 0005 on do not enroll in a schema that they cannot run on. Earlier ones do: a breaking
revision must also keep those from enrolling.
"""
_FIRST_TO_STAY: Final = "0011"
"""The first revision whose workers go on after an upgrade. Earlier ones, from 0005 on, end at any newer schema."""

OlderWorkers = Literal["keep", "refuse", "fence"]
"""How an upgrade treats workers that are recorded as alive: all of them have an older version."""

_ADVISORY_LOCK: Final = 0x6167656E74  # "agent": the key by which migrating processes exclude others
_TABLE: Final = "alembic_version"
"""Between upgrades it has the oldest revision whose workers may stay: what every worker compares itself with."""
_REVISION_COLUMNS: Final = (("schema_revision", "revision"), (_TABLE, "version_num"))
"""Where the revision of the schema is: before 0012 only in Alembic's own table."""
_PG_ACTING: Final = """
    SELECT 'trigger', t.tgname, c.relname FROM pg_trigger AS t JOIN pg_class AS c ON c.oid = t.tgrelid
    WHERE NOT t.tgisinternal AND c.relnamespace = current_schema()::regnamespace
    UNION ALL SELECT 'rule', rulename, tablename FROM pg_rules WHERE schemaname = current_schema()
    UNION ALL SELECT 'policy', policyname, tablename FROM pg_policies
    WHERE schemaname = current_schema() ORDER BY 1, 2"""


class NewerSchemaError(StoreError):
    """A newer version has upgraded the database."""


class OlderWorkersError(StoreError):
    """Workers of an earlier version are alive, and could not run after the upgrade."""


def check(database: Database) -> None:
    """Raise `StoreError` unless the database exists and this version can run on its schema."""
    with database.connect("reader") as connection:
        revision = current(connection)
        if revision is not None and _serves(connection, revision):
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
    """Return the database's revision; None if it has no tables of the agent."""
    if connection.sql.name == "sqlite":
        has_table = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = :name"
    else:
        has_table = "SELECT 1 WHERE to_regclass(CAST(:name AS text)) IS NOT NULL"
    for table, column in _REVISION_COLUMNS:
        if connection.query(has_table, name=table):
            rows = connection.query(f"SELECT {column} FROM {table}")
            return rows[0][0] if rows else None
    return None


def refuse_newer(connection: Connection) -> None:
    """Raise `NewerSchemaError` if the database was upgraded to a schema on which this version cannot go on."""
    oldest = _oldest_recorded(connection)
    if _is_newer(oldest):
        raise NewerSchemaError(
            Fault.DEFECT,
            f"the database needs schema {oldest} or newer, this version knows {HEAD}:"
            " upgrade this worker",
        )


def is_older(revision: str) -> bool:
    """Whether the migrations know a revision."""
    return revision.isdigit() and int(revision) < int(HEAD)


def is_breaking(revision: str) -> bool:
    """Whether the upgrade from a revision stops workers of that revision."""
    return any(int(revision) < int(breaking) <= int(HEAD) for breaking in BREAKING)


def ends_workers(revision: str) -> bool:
    """Whether workers of a revision, which can run on the present schema, end when they notice it."""
    return "0005" <= revision < _FIRST_TO_STAY


def oldest_worker(revision: str) -> str:
    """Return the oldest schema whose workers may stay on a database of a revision, 0012 or newer."""
    return max([_FIRST_TO_STAY, *(each for each in BREAKING if int(each) <= int(revision))])


def upgrade(database: Database, older_workers: OlderWorkers = "keep") -> None:
    """Upgrade the database to this schema; create the SQLite file if there is none.

    Several processes may call it at once: one migrates, the others wait.
    """
    if database.path is not None:
        sqlite.create(database.path)
    # Opened for writing, to distinguish a file without permission from a damaged one.
    with database.connect("writer") as connection:
        revision = current(connection)
        if revision is not None and _serves(connection, revision):
            return
    if revision is not None and _is_newer(revision):
        raise _newer(database, revision)
    if database.path is not None:
        _upgrade_sqlite(database, database.path, older_workers)
    else:
        _upgrade_postgresql(database, older_workers)


def foreign_objects(database: Database) -> list[str]:
    """Return what a database of this schema has that its migrations do not make, and what it lacks.

    A trigger, a rule or a changed default would act on its own, or answer for a person. On PostgreSQL only what acts by itself on the agent's tables is compared.
    """
    with database.connect("reader") as connection:
        if not database.is_sqlite:
            from sqlmodel import SQLModel

            from agent.store.schema import tables  # noqa: F401  (declares them)

            names = SQLModel.metadata.tables.keys()
            rows = connection.query(_PG_ACTING)
            return [f"{kind} {name} of {table}" for kind, name, table in rows if table in names]
        found = _declared(connection)
    with tempfile.TemporaryDirectory() as directory:
        fresh = Database(f"sqlite:///{directory}/fresh.db", has_write_lock=False)
        upgrade(fresh)
        with fresh.connect("reader") as connection:
            expected = _declared(connection)
    return [
        f"{kind} {name} of {table}{'' if (kind, name, table) in found else ' is missing'}"
        for kind, name, table in sorted(found.keys() | expected.keys())
        if found.get((kind, name, table)) != expected.get((kind, name, table))
    ]


def _declared(connection: Connection) -> dict[tuple[str, str, str], str]:
    rows = connection.query("SELECT type, name, tbl_name, sql FROM sqlite_master")
    # SQLite makes its own tables and indexes: of statistics, of sequences, of keys. It makes no triggers.
    return {
        row[:3]: " ".join((row[3] or "").split())
        for row in rows
        if row[0] not in ("table", "index") or not row[1].startswith("sqlite_")
    }


def _upgrade_sqlite(database: Database, path: Path, older_workers: OlderWorkers) -> None:
    from sqlalchemy import create_engine
    from sqlalchemy.pool import NullPool

    # Held open until the migration's own connection is closed: see `agent.core.files.database_file`.
    file = database_file.open_file(path)
    handle = None if database.write_lock is None else database.write_lock.open()
    try:
        if handle is not None:
            try:
                handle.acquire(sqlite.PATIENCE_SECONDS)
            except WriteLockTimeoutError:
                raise StoreError(Fault.BUSY, sqlite_errors.locked(path)) from None
        engine = create_engine(
            "sqlite://",
            module=sqlite_driver.driver().module,
            creator=lambda: sqlite.connect_for_migration(path),
            poolclass=NullPool,
        )
        _run(engine, ["BEGIN IMMEDIATE"], database.sql, older_workers)
    finally:
        if handle is not None:
            handle.close()
        database_file.give_back(file)


def _upgrade_postgresql(database: Database, older_workers: OlderWorkers) -> None:
    import psycopg
    from sqlalchemy import create_engine
    from sqlalchemy.pool import NullPool

    engine = create_engine(
        "postgresql+psycopg://",
        # Behind a connection pooler, prepared statements would stay in the pool.
        creator=lambda: psycopg.connect(database.url, prepare_threshold=None),
        poolclass=NullPool,
    )
    locks = [f"SELECT pg_advisory_xact_lock({_ADVISORY_LOCK})"]
    with database.connect("reader") as connection:
        if current(connection) is not None:
            # Blocks commits and enrolments of workers: they lock other tables in another order.
            locks.append("LOCK TABLE workers IN SHARE ROW EXCLUSIVE MODE")
    _run(engine, locks, database.sql, older_workers)


def _meet(connection: "sqlalchemy.Connection", sql: Sql, older_workers: OlderWorkers) -> None:
    """Handle workers that are recorded as alive, in the transaction that migrates."""
    from sqlalchemy import inspect, text

    if older_workers == "keep":
        return
    there = [each for each in _REVISION_COLUMNS if inspect(connection).has_table(each[0])]
    if not there:
        return
    table, column = there[0]
    if connection.execute(text(f"SELECT {column} FROM {table}")).scalar() == HEAD:
        # Another process has migrated: workers that enrolled since then have this version.
        return
    if older_workers == "refuse":
        if connection.execute(text("SELECT 1 FROM workers WHERE dead = 0")).first() is not None:
            raise OlderWorkersError(Fault.BUSY, "a worker of an earlier version has just started")
        return
    now = connection.execute(text(f"SELECT {sql.now_us}")).scalar_one()
    fenced = connection.execute(
        text("UPDATE workers SET dead = 1, ended_at = :now WHERE dead = 0 RETURNING id, turn"),
        {"now": now},
    )
    for worker_id, tx_number in fenced.all():
        connection.execute(
            text(
                f"INSERT INTO events (xid, type, at, data) VALUES ({sql.xid}, :type, :now, :data)"
            ),
            {
                "type": "worker.died",
                "now": now,
                "data": json.dumps({"worker": worker_id, "turn": tx_number}),
            },
        )


def _run(
    engine: "sqlalchemy.Engine", locks: list[str], sql: Sql, older_workers: OlderWorkers
) -> None:
    """Migrate in one transaction that takes the locks first."""
    from alembic import command
    from alembic.config import Config
    from sqlalchemy.exc import DBAPIError

    config = Config()
    config.set_main_option("script_location", "agent.store.schema:migrations")
    config.set_main_option("path_separator", "os")
    try:
        with engine.connect() as connection, connection.begin():
            for lock in locks:
                connection.exec_driver_sql(lock)
            _meet(connection, sql, older_workers)
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


def _serves(connection: Connection, revision: str) -> bool:
    """Whether this version runs on a database of this revision: its own, or a newer one that only adds to it."""
    is_newer = _is_newer(revision)
    return revision == HEAD or (is_newer and not _is_newer(_oldest_recorded(connection)))


def _oldest_recorded(connection: Connection) -> str:
    ((oldest,),) = connection.query(f"SELECT version_num FROM {_TABLE}")
    return str(oldest)


def _is_newer(revision: str) -> bool:
    return not revision.isdigit() or int(revision) > int(HEAD)


def _newer(database: Database, revision: str) -> StoreError:
    return NewerSchemaError(
        Fault.DEFECT,
        f"{_name(database)} has the schema {revision}, newer than this version's {HEAD}:"
        " use the version of agent that made it, or a newer one",
    )


def _name(database: Database) -> str:
    return "the PostgreSQL database" if database.path is None else str(database.path)
