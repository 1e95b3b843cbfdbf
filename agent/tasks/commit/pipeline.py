"""What a worker has sent: its identity, its connection, and its turns in their order.

Everything here runs in the database's thread. A turn that takes all it is about for granted is sent
with its COMMIT and waited for later: the next one may follow it. The worker's own row is the witness:
a turn goes only from n - 1 to n, so where one fails, those behind it fail as well; and after a COMMIT
without an answer the row says what landed.
"""

import os
import socket
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from agent.core.clock import Clock
from agent.core.ids import new_id
from agent.steps.process.processes import start_time
from agent.store.db.database import (
    CommitUnknownError,
    Connection,
    Database,
    StoreError,
    replaced,
)
from agent.store.db.dialect import Fault
from agent.store.engine import workers
from agent.store.schema import migrate
from agent.tasks.commit import transaction
from agent.tasks.commit.batch import Batch, TxResult
from agent.tasks.commit.task_cache import TaskCache
from agent.tasks.rules.claiming import ClaimCapacity
from agent.tasks.state.graph_cache import GraphCache

_ASK_SECONDS: Final = 60.0
_ASK_AGAIN_SECONDS: Final = 0.2


@dataclass(slots=True, eq=False)
class InFlightTx:
    """A turn that was sent; whoever lands it learns what became of it."""

    batch: Batch
    room: ClaimCapacity
    began: float = 0.0
    number: int = 0
    turned: TxResult | None = None
    wait: Callable[[], None] | None = None
    """Waits for its COMMIT; None when nothing is to be waited for."""
    error: Exception | None = None
    is_dropped: bool = False
    """Whether nothing came of it, since one that was sent before has failed."""

    @property
    def is_in_the_air(self) -> bool:
        """Whether its COMMIT may be waited for later, after another turn was sent."""
        turned = self.turned
        return (
            self.wait is not None
            and turned is not None
            and not (turned.is_alone or turned.is_draining)
        )

    @property
    def more_running(self) -> int:
        """By how many more attempts will run once it has landed."""
        return 0 if self.turned is None else len(self.turned.claimed) - len(self.batch.settles)


class Sender:
    """One worker's connection and identity, and the turns that it has sent."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self.database = database
        self.clock = clock
        self.worker_id = ""
        self.turn = 0
        self.graphs = GraphCache()
        self.cache = TaskCache()
        self.flights: list[InFlightTx] = []
        """Turns that were sent, in their order, and have not landed."""
        self._connection: Connection | None = None

    @property
    def connection(self) -> Connection:
        """The connection for turns, opened when it is needed."""
        if self._connection is None:
            self._connection = self.database.connect("turn")
        return self._connection

    def check_file(self) -> None:
        """Raise `StoreError` if the database's file was deleted or replaced; any thread may ask."""
        connection = self._connection
        if connection is None:
            self.database.check_file()
        else:
            connection.check_file()

    def check_known(self) -> None:
        """Raise `StoreError` unless the database still knows this worker, dead or alive.

        Its row is the token by which another database under the same file is told apart.
        """
        if workers.turn_of(self.connection, self.worker_id) is None:
            raise replaced(self.database.path)

    def disconnect(self) -> None:
        """Close the connection; the next use opens a new one."""
        if self._connection is not None:
            connection, self._connection = self._connection, None
            connection.close()

    def enroll(self) -> None:
        """Take a new identity: a row that is this worker's heartbeat, fence and witness."""
        worker_id = new_id()
        host, process_id = socket.gethostname(), os.getpid()
        started = start_time(process_id) or ""
        try:
            connection = self.connection
            with connection.transaction():
                # A worker that was fenced by an upgrade must not come back with its old version.
                migrate.refuse_newer(connection)
                now = self.clock.now()
                workers.enroll(connection, worker_id, host, process_id, started, now)
        except StoreError as error:
            self.after_failure(error)
            raise
        self.worker_id, self.turn = worker_id, 0

    def retire(self) -> None:
        """Say that this worker has stopped; what it still holds is others' to recover."""
        connection = self.connection
        with connection.transaction():
            workers.retire(connection, self.worker_id, self.clock.now(), "worker.stopped")

    def commit(self, batch: Batch, room: ClaimCapacity) -> TxResult:
        """Send a turn and wait for it."""
        flight = InFlightTx(batch, room)
        self.send(flight)
        self.wait_for(flight)
        return self.turned(flight)

    def turned(self, flight: InFlightTx) -> TxResult:
        """Return what a turn did; one that took for granted what has changed is sent again."""
        if isinstance(flight.error, StoreError) and flight.error.fault is Fault.STALE:
            return self.commit(flight.batch, flight.room)
        if flight.error is not None:
            raise flight.error
        assert flight.turned is not None
        return flight.turned

    def send(self, flight: InFlightTx) -> None:
        """Compute a turn and send it, its COMMIT included."""
        flight.number = self.turn + 1
        connection = self.connection
        room = replace(flight.room, worker_id=self.worker_id, turn=flight.number)
        now = self.clock.now()
        try:
            with connection.transaction():
                flight.turned = transaction.run(
                    connection, flight.batch, room, self.graphs, self.cache, now
                )
                if flight.turned.is_assumed:
                    flight.wait = connection.send_commit()
        except CommitUnknownError:
            # The turn was computed under its locks: if its number is in our row, it landed whole.
            if flight.turned is None or self._landed_turn() < flight.number:
                raise
            self.cache.forget()
        except StoreError as error:
            if error.fault is not Fault.STALE:
                raise
            self.cache.forget(flight.batch.task_ids())
            self.send(flight)
            return
        self.turn = flight.number

    def wait_for(self, flight: InFlightTx) -> None:
        """Wait for the COMMIT of what was sent; where it failed, so have all that were sent later."""
        wait, flight.wait = flight.wait, None
        if wait is None:
            if flight.error is not None:
                self._drop_after(flight)
            return
        try:
            wait()
            return
        except CommitUnknownError as error:
            self.cache.forget()
            self.turn = flight.number - 1
            try:
                self.turn = self._landed_turn()
            except StoreError as unanswered:
                flight.error = unanswered
            else:
                if self.turn < flight.number:
                    flight.error = error
        except StoreError as error:
            # If it is stale: somebody has written a task that was remembered, or holds it.
            is_stale = error.fault is Fault.STALE
            self.cache.forget(flight.batch.task_ids() if is_stale else ())
            flight.error = error
            self.turn = flight.number - 1
        self._drop_after(flight)

    def _drop_after(self, flight: InFlightTx) -> None:
        """Give up the turns that were sent after one, but for those that have landed with it."""
        # One that was committed alone is not among them: nothing was sent after it.
        sent = self.flights
        for each in sent[sent.index(flight) + 1 :] if flight in sent else ():
            each.wait = None
            each.is_dropped = flight.error is not None or each.number > self.turn

    def _landed_turn(self) -> int:
        """Ask our own row which turn was committed last, for as long as nobody answers.

        To go on without knowing would be to send a turn again that may have happened.
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

    def after_failure(self, error: StoreError) -> None:
        """Let go of a connection that is of no more use."""
        if error.fault in (Fault.LOST, Fault.CORRUPT):
            self.disconnect()
