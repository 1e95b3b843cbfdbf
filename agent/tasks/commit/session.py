"""A worker's connection, its identity, and the number of its last transaction.

The worker's row carries all three meanings: it is the heartbeat, the fence and the record of what was
committed. A transaction moves its number from n - 1 to n, or fails.
"""

import os
import socket
from typing import Final

from agent.core.clock import Clock
from agent.core.ids import new_id
from agent.steps.process.processes import start_time
from agent.store.db.database import Connection, Database, StoreError, replaced
from agent.store.db.dialect import Fault
from agent.store.engine import workers
from agent.store.schema import migrate

_ASK_SECONDS: Final = 60.0
_ASK_AGAIN_SECONDS: Final = 0.2


class WorkerSession:
    """The connection and the row of one worker."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self.database = database
        self.clock = clock
        self.worker_id = ""
        self.tx_number = 0
        """The number of the last transaction that was sent."""
        self._connection: Connection | None = None

    @property
    def connection(self) -> Connection:
        """The connection for commits, opened at its first use."""
        if self._connection is None:
            self._connection = self.database.connect("worker")
        return self._connection

    def disconnect(self) -> None:
        """Close the connection; the next use opens a new one."""
        if self._connection is not None:
            connection, self._connection = self._connection, None
            connection.close()

    def check_file(self) -> None:
        """Raise `StoreError` if the database file was deleted or replaced; safe in any thread."""
        connection = self._connection
        if connection is None:
            self.database.check_file()
        else:
            connection.check_file()

    def check_row(self) -> None:
        """Raise `StoreError` unless the database has this worker's row, dead or alive.

        Without it the file is another database under the same name.
        """
        if workers.turn_of(self.connection, self.worker_id) is None:
            raise replaced(self.database.path)

    def enroll(self) -> None:
        """Take a new identity."""
        worker_id = new_id()
        host, process_id = socket.gethostname(), os.getpid()
        started = start_time(process_id) or ""
        connection = self.connection
        with connection.transaction():
            # A worker that an upgrade fenced must not come back with its old version.
            migrate.refuse_newer(connection)
            now = self.clock.now()
            workers.enroll(connection, worker_id, host, process_id, started, now)
        self.worker_id, self.tx_number = worker_id, 0

    def retire(self) -> None:
        """Record that this worker has stopped; other workers rescue its remaining steps."""
        connection = self.connection
        with connection.transaction():
            workers.retire(connection, self.worker_id, self.clock.now(), "worker.stopped")

    def last_committed(self) -> int:
        """Return the number of the last committed transaction, from the worker's row.

        It asks until the database answers: without an answer the same transaction could be sent
        twice.
        """
        give_up = self.clock.monotonic() + _ASK_SECONDS
        while True:
            self.disconnect()
            try:
                return workers.turn_of(self.connection, self.worker_id) or 0
            except StoreError as error:
                if error.fault is not Fault.LOST or self.clock.monotonic() > give_up:
                    raise
            self.clock.sleep(_ASK_AGAIN_SECONDS)
