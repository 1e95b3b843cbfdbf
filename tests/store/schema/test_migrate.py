"""The migrations reach exactly the declared schema, once, and nothing runs on another one."""

import multiprocessing
import re
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine
from sqlalchemy.pool import NullPool
from sqlmodel import SQLModel

from agent.store.db import sqlite
from agent.store.db.database import Database, StoreError
from agent.store.db.dialect import Fault
from agent.store.schema import migrate, tables
from tests.upgrade.revisions import set_revision

PATIENCE_SECONDS = 60
_CATALOGUE = {
    "columns": """
        SELECT table_name, ordinal_position, column_name, data_type, is_nullable, column_default,
               is_identity
        FROM information_schema.columns WHERE table_schema = 'public' ORDER BY 1, 2""",
    "constraints": """
        SELECT conrelid::regclass::text, conname, contype::text, pg_get_constraintdef(oid)
        FROM pg_constraint WHERE connamespace = 'public'::regnamespace AND contype <> 'n'
        ORDER BY 1, 2""",
    "indexes": """
        SELECT tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'
        ORDER BY 1, 2""",
}


def _describe_postgresql(url: str) -> dict[str, list[tuple[object, ...]]]:
    with psycopg.connect(url) as connection:
        return {
            name: [
                row
                for row in connection.execute(query.encode()).fetchall()
                if row[0] != "alembic_version"
            ]
            for name, query in _CATALOGUE.items()
        }


def _describe_sqlite(database: Database) -> dict[str, list[str]]:
    with database.connect("reader") as connection:
        rows = connection.query(
            "SELECT type || ' ' || name, sql FROM sqlite_master WHERE tbl_name <> 'alembic_version'"
        )
    # The order of a table's constraints has no meaning; that of its columns has.
    described = {}
    for name, sql in rows:
        inner = re.sub(r"\)(\s*)$", r"\1", sql or "") if name.startswith("table") else sql or ""
        # A recreated table is quoted.
        inner = re.sub(r'^CREATE TABLE "(\w+)"', r"CREATE TABLE \1", inner)
        # A column that was only added has no line of its own.
        lines = re.split(r",\s*\n|, (?=\w+ (?:BIGINT|TEXT))", re.sub(r"[ \t]+", " ", inner))
        parts = [part.strip() for part in lines]
        columns = [part for part in parts if not re.match(r"(CONSTRAINT|FOREIGN|PRIMARY)", part)]
        described[name] = columns + sorted(part for part in parts if part not in columns)
    return described


def test_the_migrations_reach_the_declared_schema_on_sqlite(tmp_path: Path) -> None:
    """Tables, columns, keys, checks, indexes and their conditions, AUTOINCREMENT: all the same."""
    migrated = Database(f"sqlite:///{tmp_path}/migrated.db")
    declared = Database(f"sqlite:///{tmp_path}/declared.db")
    migrate.upgrade(migrated)
    path = tmp_path / "declared.db"
    sqlite.create(path)
    engine = create_engine(
        "sqlite://", creator=lambda: sqlite.connect_for_migration(path), poolclass=NullPool
    )
    SQLModel.metadata.create_all(engine)
    described = _describe_sqlite(migrated)
    assert described == _describe_sqlite(declared)
    assert "AUTOINCREMENT" in " ".join(described["table events"])
    assert "WHERE status = 'running'" in described["index tasks_due"][0]


def test_the_migrations_reach_the_declared_schema_on_postgresql(
    postgres_url: str, empty_postgres_url: str
) -> None:
    """Columns, constraints and indexes are the same in the server's own catalogue."""
    engine = create_engine(
        "postgresql+psycopg://",
        creator=lambda: psycopg.connect(empty_postgres_url),
        poolclass=NullPool,
    )
    SQLModel.metadata.create_all(engine)
    described = _describe_postgresql(postgres_url)
    assert described == _describe_postgresql(empty_postgres_url)
    assert {row[0] for row in described["columns"]} == set(SQLModel.metadata.tables)
    assert "status" in tables.Task.model_fields


def test_head_is_the_newest_migration() -> None:
    """The quick check and the migrations agree on what the newest revision is."""
    config = Config()
    config.set_main_option("script_location", "agent.store.schema:migrations")
    config.set_main_option("path_separator", "os")
    assert ScriptDirectory.from_config(config).get_heads() == [migrate.HEAD]


def test_the_database_records_the_oldest_schema_whose_workers_may_stay(
    database: Database,
) -> None:
    """Beside its own schema, and where workers of that version look."""
    with database.connect("reader") as connection:
        assert connection.query("SELECT revision FROM schema_revision") == [(migrate.HEAD,)]
        oldest = migrate.oldest_worker(migrate.HEAD)
        assert connection.query("SELECT version_num FROM alembic_version") == [(oldest,)]
    assert oldest < migrate.HEAD


def test_upgrading_again_changes_nothing(database: Database) -> None:
    """A database that is up to date keeps its schema and its rows."""
    with database.connect("writer") as connection:
        connection.execute("INSERT INTO workers VALUES ('w', 1, 0, 'h', 1, 's', 1, NULL)")
    migrate.upgrade(database)
    migrate.check(database)
    with database.connect("reader") as connection:
        assert connection.query("SELECT id FROM workers") == [("w",)]


def _upgrade(url: str) -> None:
    migrate.upgrade(Database(url))


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_parallel_upgrades_exclude_each_other(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Several agents started together migrate once, and all of them succeed."""
    if kind == "sqlite":
        url = f"sqlite:///{tmp_path}/agent.db"
    else:
        url = request.getfixturevalue("empty_postgres_url")
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_upgrade, args=(url,)) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(2 * PATIENCE_SECONDS)
        process.kill()
    assert [process.exitcode for process in processes] == [0, 0]
    migrate.check(Database(url))


def test_a_newer_database_is_refused(database: Database) -> None:
    """For use and for upgrade: the message names both versions and what to do."""
    set_revision(database, "9999")
    for use in (migrate.check, migrate.upgrade):
        with pytest.raises(StoreError, match=r"9999, newer than this version's \d{4}") as caught:
            use(database)
        assert caught.value.fault is Fault.DEFECT


def test_an_older_database_is_refused_until_upgraded(database: Database) -> None:
    """The message says which command brings it up to date."""
    set_revision(database, "0000")
    with pytest.raises(StoreError, match="agent db upgrade"):
        migrate.check(database)


def test_an_empty_database_is_reported_as_empty(tmp_path: Path, empty_postgres_url: str) -> None:
    """A missing file counts as one too."""
    path = tmp_path / "agent.db"
    with pytest.raises(StoreError, match="no database at") as caught:
        migrate.check(Database(f"sqlite:///{path}"))
    assert caught.value.fault is Fault.LOST
    assert not path.exists()
    sqlite.create(path)
    for url in (f"sqlite:///{path}", empty_postgres_url):
        with pytest.raises(StoreError, match="has no tables yet"):
            migrate.check(Database(url))


def test_a_failed_migration_is_rolled_back(tmp_path: Path) -> None:
    """An existing table of the same name stops it; what it created before is undone."""
    database = Database(f"sqlite:///{tmp_path}/agent.db")
    assert database.path is not None
    sqlite.create(database.path)
    with database.connect("writer") as connection:
        connection.execute("CREATE TABLE workflows (x text)")
    with pytest.raises(StoreError, match=r"the schema was not upgraded.*workflows"):
        migrate.upgrade(database)
    with database.connect("reader") as connection:
        assert connection.query("SELECT name FROM sqlite_master") == [("workflows",)]
        assert migrate.current(connection) is None


def test_the_check_needs_no_migration_library(sqlite_database: Database) -> None:
    """Commands that only read must not pay for importing Alembic and SQLAlchemy."""
    code = (
        "import sys; from agent.store.schema import migrate; from agent.store.db.database import Database;"
        f"migrate.check(Database({sqlite_database.url!r}));"
        "loaded = {'alembic', 'sqlalchemy', 'sqlmodel', 'psycopg', 'pydantic'} & set(sys.modules);"
        "sys.exit(str(loaded) if loaded else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
