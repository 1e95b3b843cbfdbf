"""Counting the transactions that wrote something, alike for every engine.

On PostgreSQL they are the ones that took a transaction id: a transaction that only reads takes none.
SQLite keeps no such count, so its commits are counted where they are made.
"""

from collections.abc import Callable

from agent.store.db.database import Connection, Database, Role
from agent.store.db.sqlite import SqliteConnection

Count = Callable[[], int]


class CountedDatabase(Database):
    """A database of ours that counts its commits, of every connection, while it is a file."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.commits = 0

    def connect(self, role: Role = "writer") -> Connection:
        """Open a connection that is counted."""
        if self.path is None:
            return super().connect(role)
        return _CountedConnection(self, role)


class _CountedConnection(SqliteConnection):
    def __init__(self, database: CountedDatabase, role: Role) -> None:
        assert database.path is not None
        self._database = database
        super().__init__(database.path, role, database.write_lock)

    def _commit(self) -> None:
        super()._commit()
        self._database.commits += 1


def transaction_ids(url: str) -> Count:
    """Return what reads the number of transaction ids that a PostgreSQL server has given out."""
    import psycopg

    connection = psycopg.connect(url, autocommit=True)

    def count() -> int:
        row = connection.execute(
            "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint"
        ).fetchone()
        assert row is not None
        return int(row[0])

    return count
