"""Databases as earlier versions left them, compressed in files of this directory.

    python -m tests.upgrade.frozen

freezes one of the present version, on SQLite as a file and on PostgreSQL as the rows of its tables.
Run it before a release with a new schema, then add that schema to `RELEASED`.
"""

import gzip
import shutil
import sys
import tempfile
from pathlib import Path

import psycopg

from agent.store.db.database import Database
from agent.store.schema import migrate
from tests.support.postgres import PostgresServer
from tests.upgrade.story import in_flight

DIRECTORY = Path(__file__).parent
RELEASED = ("0001", "0002", "0003", "0004", "0005", "0006", "0007", "0008", "0010", "0011", "0012")
"""The revisions of the schema that people have databases of."""
_TABLES = """
    SELECT tablename FROM pg_tables WHERE schemaname = 'public'
    AND tablename NOT IN ('alembic_version', 'schema_revision') ORDER BY 1"""
_COLUMNS = """
    SELECT column_name FROM information_schema.columns
    WHERE table_schema = 'public' AND table_name = %s ORDER BY ordinal_position"""
# A sequence knows nothing of rows that were put in with their numbers.
_SEQUENCES = """
    SELECT table_name, column_name FROM information_schema.columns
    WHERE table_schema = 'public' AND (is_identity = 'YES' OR column_default LIKE 'nextval%')"""
_ANONYMOUS = "UPDATE workers SET host = 'elsewhere'"


def thaw_sqlite(revision: str, path: Path) -> None:
    """Put a frozen SQLite database into a file."""
    with gzip.open(DIRECTORY / f"{revision}.db.gz") as frozen, path.open("wb") as file:
        shutil.copyfileobj(frozen, file)


def thaw_postgres(revision: str, url: str) -> None:
    """Put frozen rows into a PostgreSQL database that has the tables of that revision."""
    text = gzip.decompress((DIRECTORY / f"{revision}.sql.gz").read_bytes()).decode()
    with psycopg.connect(url) as connection:
        # Rows refer to rows of tables that come later.
        connection.execute("SET session_replication_role = replica")
        for part in text.split("\\.\n")[:-1]:
            statement, _, rows = part.partition(";\n")
            with connection.cursor().copy(statement.encode()) as copy:
                copy.write(rows)
        for table, column in connection.execute(_SEQUENCES).fetchall():
            connection.execute(
                f"SELECT setval(pg_get_serial_sequence('{table}', '{column}'),"
                f" (SELECT coalesce(max({column}), 1) FROM {table}))"
            )


def _freeze_sqlite(directory: Path) -> bytes:
    path = directory / "agent.db"
    database = Database(f"sqlite:///{path}")
    migrate.upgrade(database)
    copy = directory / "frozen.db"
    with in_flight(database), database.connect("writer") as connection:
        connection.execute("VACUUM INTO :path", path=str(copy))
    with Database(f"sqlite:///{copy}", has_write_lock=False).connect("writer") as connection:
        connection.execute(_ANONYMOUS)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return copy.read_bytes()


def _freeze_postgres(url: str) -> bytes:
    database = Database(url)
    migrate.upgrade(database)
    parts = []
    with in_flight(database), psycopg.connect(url) as connection:
        connection.execute(_ANONYMOUS)
        connection.commit()
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        for (table,) in connection.execute(_TABLES).fetchall():
            columns = [f'"{name}"' for (name,) in connection.execute(_COLUMNS, [table]).fetchall()]
            named = f"COPY {table} ({', '.join(columns)})"
            with connection.cursor().copy(f"{named} TO STDOUT".encode()) as copy:
                rows = b"".join(bytes(piece) for piece in copy)
            parts.append(f"{named} FROM STDIN;\n".encode() + rows + b"\\.\n")
    return b"".join(parts)


def main() -> int:
    """Freeze a database of the present revision of each kind."""
    server = PostgresServer()
    try:
        server.start()
        rows = _freeze_postgres(server.url())
    finally:
        server.stop()
    with tempfile.TemporaryDirectory() as directory:
        file = _freeze_sqlite(Path(directory))
    for suffix, content in (("db", file), ("sql", rows)):
        path = DIRECTORY / f"{migrate.HEAD}.{suffix}.gz"
        path.write_bytes(gzip.compress(content, mtime=0))
        print(f"{path.name}: {path.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
