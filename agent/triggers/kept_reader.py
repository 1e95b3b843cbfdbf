"""A connection for reads that is kept open: a pass over due triggers must not wait for a new one."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from agent.store.db.database import Connection, Database, StoreError


class KeptReader:
    """Lends its connection to one thread at a time, and opens another after a failure."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._connection: Connection | None = None
        self._lock = threading.Lock()

    @contextmanager
    def connect(self) -> Iterator[Connection]:
        """Lend the connection."""
        with self._lock:
            if self._connection is None:
                self._connection = self._database.connect("reader")
            try:
                yield self._connection
            except StoreError:
                self._close()
                raise

    def close(self) -> None:
        """Close the connection; the next use opens another."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
