"""Fresh databases to measure on: SQLite files, and databases of a durable PostgreSQL."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

from agent.store.db.database import Database
from agent.store.schema import migrate
from tests.support.postgres import PostgresServer


class Stores:
    """Makes databases and removes them; the server starts when the first one asks for it."""

    def __init__(self) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="agent-bench-"))
        self._server: PostgresServer | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.stop()
        shutil.rmtree(self._directory, ignore_errors=True)

    @contextmanager
    def directory(self) -> Iterator[Path]:
        """Give an empty directory for as long as the block lasts."""
        path = self._directory / uuid4().hex
        path.mkdir()
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)

    @contextmanager
    def fresh(self, store: str) -> Iterator[str]:
        """Give the address of an empty database for as long as the block lasts."""
        if store == "sqlite":
            with self.directory() as path:
                yield f"sqlite:///{path / 'bench.db'}"
            return
        server = self._running()
        name = f"bench_{uuid4().hex}"
        _run(server, f"CREATE DATABASE {name}")
        try:
            yield server.url(name)
        finally:
            _run(server, f"DROP DATABASE {name} WITH (FORCE)")
            # What this one leaves to write must not be written while the next one is measured.
            _run(server, "CHECKPOINT")

    @contextmanager
    def migrated(self, store: str) -> Iterator[str]:
        """Give the address of a database with our tables for as long as the block lasts.

        They are made in this process: what migrating takes of time and memory is not the engine's.
        """
        with self.fresh(store) as url:
            migrate.upgrade(Database(url))
            yield url

    def _running(self) -> PostgresServer:
        if self._server is None:
            self._server = PostgresServer(is_durable=True)
            self._server.start()
            for name in ("fsync", "synchronous_commit", "full_page_writes"):
                if _run(self._server, f"SHOW {name}") != "on":
                    raise RuntimeError(f"the server must run with {name} on to be compared")
        return self._server


def _run(server: PostgresServer, statement: str) -> Any:
    import psycopg

    with psycopg.connect(server.url(), autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        row = cursor.fetchone() if cursor.description is not None else None
        return None if row is None else row[0]
