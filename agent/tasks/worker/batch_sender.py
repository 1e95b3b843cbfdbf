"""Sends batches from the outbox to the committer, in the database thread.

On PostgreSQL one transaction may be unconfirmed while the next batch is computed: much work is sent in
halves, and each half is sent before the other is confirmed.
"""

from agent.core.thread_bridge import ThreadBridge
from agent.store.db.database import StoreError
from agent.tasks.commit.batch import CommitResult
from agent.tasks.commit.committer import Committer
from agent.tasks.commit.faults import DroppedError, FencedError
from agent.tasks.commit.pipeline import InFlightTx
from agent.tasks.worker.outbox import Outbox
from agent.tasks.worker.slots import Slots

CommitFailure = StoreError | FencedError | DroppedError
FinishedTx = tuple[InFlightTx, CommitResult | CommitFailure]
"""A transaction that is no longer in flight, and what it did or why it failed."""


class BatchSender:
    """Sends batches in order; at most one is unconfirmed between two calls."""

    def __init__(
        self, committer: Committer, thread: ThreadBridge, outbox: Outbox, slots: Slots
    ) -> None:
        self._committer = committer
        self._thread = thread
        self._outbox = outbox
        self._slots = slots
        self.unconfirmed: InFlightTx | None = None
        """The transaction that was sent and whose COMMIT is not confirmed."""

    async def commit(self, *, must_query_due: bool, is_stopping: bool) -> list[FinishedTx]:
        """Send a batch; return the transactions that are complete with it, in order."""
        ahead, self.unconfirmed = self.unconfirmed, None
        may_pipeline = not (self._committer.database.is_sqlite or must_query_due or is_stopping)
        batch = self._outbox.take(is_half=may_pipeline and ahead is None)
        capacity = self._slots.capacity(
            batch, ahead, must_query_due=must_query_due, is_stopping=is_stopping
        )
        may_stay = may_pipeline and (ahead is not None or not self._outbox.is_empty)

        def exchange() -> list[FinishedTx]:
            tx = self._committer.send(batch, capacity)
            finished = [] if ahead is None else [self._complete(ahead)]
            if may_stay and tx.is_unconfirmed:
                self.unconfirmed = tx
            else:
                finished.append(self._complete(tx))
            return finished

        return await self._thread.run(exchange)

    async def complete_unconfirmed(self) -> list[FinishedTx]:
        """Wait for the unconfirmed transaction, if there is one."""
        ahead, self.unconfirmed = self.unconfirmed, None
        if ahead is None:
            return []
        return [await self._thread.run(lambda: self._complete(ahead))]

    def _complete(self, tx: InFlightTx) -> FinishedTx:
        try:
            return tx, self._committer.complete(tx)
        except (StoreError, FencedError, DroppedError) as error:
            return tx, error
