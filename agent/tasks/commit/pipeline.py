"""The transactions that a worker has sent, in order, until each is confirmed.

On PostgreSQL a transaction that reads nothing is sent together with its COMMIT, and the next one may
follow before the first is confirmed. The numbers keep the order through every failure: a transaction
moves the worker's row from n - 1 to n, so where one fails, all later ones fail too.
"""

from collections.abc import Callable
from dataclasses import dataclass

from agent.store.db.database import CommitUnknownError, Connection, StoreError
from agent.tasks.commit.batch import Batch, TxResult
from agent.tasks.commit.faults import AnyCause, Cause, cause_of
from agent.tasks.commit.session import WorkerSession
from agent.tasks.rules.claiming import ClaimCapacity


@dataclass(slots=True, eq=False)
class InFlightTx:
    """A transaction that was sent; `Committer.complete` returns its result."""

    batch: Batch
    capacity: ClaimCapacity
    began: float = 0.0
    tx_number: int = 0
    may_assume: bool = True
    """Whether it may rely on cached rows that the database then checks."""
    result: TxResult | None = None
    wait: Callable[[], None] | None = None
    """Waits for its COMMIT; None when there is nothing to wait for."""
    error: Exception | None = None
    is_confirmed_late: bool = False
    """Whether the worker's row, not an acknowledgement, shows that it is committed."""
    is_dropped: bool = False
    """Whether it had no effect because an earlier transaction failed."""

    @property
    def cause(self) -> AnyCause | None:
        """Why it did not end as usual; None if it did."""
        if self.error is not None:
            return cause_of(self.error)
        return Cause.CONFIRMED_LATE if self.is_confirmed_late else None

    @property
    def is_unconfirmed(self) -> bool:
        """Whether another transaction may be sent before its COMMIT is confirmed."""
        result = self.result
        return (
            self.wait is not None
            and result is not None
            and not (result.is_isolated or result.is_draining)
        )

    @property
    def more_running(self) -> int:
        """How many more attempts will run once it is complete."""
        return 0 if self.result is None else len(self.result.claimed) - len(self.batch.completions)


class Pipeline:
    """Sends transactions in order, and finds out which of them were committed."""

    def __init__(self, session: WorkerSession) -> None:
        self._session = session
        self._sent: list[InFlightTx] = []

    def add(self, tx: InFlightTx) -> bool:
        """Append a transaction; return whether it can be sent: not behind one that failed."""
        for earlier in self._sent:
            if earlier.error is not None:
                tx.is_dropped = True
        self._sent.append(tx)
        return not tx.is_dropped

    def remove(self, tx: InFlightTx) -> None:
        """Remove a transaction that is confirmed, failed or dropped."""
        self._sent.remove(tx)

    def send(self, tx: InFlightTx, run: Callable[[Connection, InFlightTx], TxResult]) -> None:
        """Run a transaction and send it with its COMMIT; `tx.error` keeps its failure."""
        session = self._session
        tx.tx_number = session.tx_number + 1
        tx.error, tx.result = None, None
        try:
            connection = session.connection
            with connection.transaction():
                tx.result = run(connection, tx)
                if tx.result.is_assumed:
                    tx.wait = connection.send_commit()
        except CommitUnknownError as error:
            self._find_out(tx, error)
        except Exception as error:
            # Raised by `complete`: the transactions before this one are completed first.
            tx.error = error
        else:
            session.tx_number = tx.tx_number

    def confirm(self, tx: InFlightTx) -> None:
        """Wait for the COMMIT of a transaction; where it failed, drop all later ones."""
        wait, tx.wait = tx.wait, None
        if wait is None:
            return
        try:
            wait()
        except CommitUnknownError as error:
            self._find_out(tx, error)
        except StoreError as error:
            tx.error = error
            self._session.tx_number = tx.tx_number - 1
            self._drop_after(tx)

    def confirm_all(self) -> None:
        """Wait for every COMMIT, before a transaction that nothing may be in flight beside."""
        for tx in self._sent:
            self.confirm(tx)

    def _find_out(self, tx: InFlightTx, error: CommitUnknownError) -> None:
        """Read from the worker's row whether a COMMIT without an acknowledgement took effect."""
        session = self._session
        session.tx_number = tx.tx_number - 1
        try:
            session.tx_number = session.last_committed()
        except StoreError as unanswered:
            tx.error = unanswered
        else:
            # Computed under its locks: if its number is in the row, all of it was committed.
            if tx.result is None or session.tx_number < tx.tx_number:
                tx.error = error
            else:
                tx.is_confirmed_late = True
        self._drop_after(tx)

    def _drop_after(self, tx: InFlightTx) -> None:
        """Drop the transactions that were sent after one, except those that were committed."""
        for later in self._sent[self._sent.index(tx) + 1 :] if tx in self._sent else ():
            later.wait = None
            is_committed = tx.error is None and later.tx_number <= self._session.tx_number
            later.is_dropped = not is_committed
            later.is_confirmed_late = is_committed
