"""A worker's large values outside the database: both directions, and the steps that wait for them.

Everything here belongs to the worker's loop, but for what it asks of the database's thread.
"""

from collections.abc import Callable, Collection
from typing import Final

from agent.core.thread_bridge import ThreadBridge
from agent.steps.types.attempt_input import AttemptInput
from agent.steps.types.outcome import Returned
from agent.store.artifacts.blobs import store_of
from agent.tasks.commit.batch import Completion, JournalEntry
from agent.tasks.commit.committer import CommitResult, Delivery, Look
from agent.tasks.commit.unfetched_steps import Unfetched
from agent.tasks.rules.settlement import Claim
from agent.tasks.worker.attempts import Intake, claim_of
from agent.tasks.worker.downloads import Downloads
from agent.tasks.worker.health import Troubles
from agent.tasks.worker.outages import Outages
from agent.tasks.worker.outbox import Outbox
from agent.tasks.worker.uploads import Uploads

MOST_WAITING: Final = 1000
"""So many steps may wait for values from outside without taking up a slot."""


class ExternalValues:
    """What a worker has outside the database; nothing of it holds up a turn."""

    def __init__(
        self,
        delivery: Delivery,
        link: ThreadBridge,
        outbox: Outbox,
        troubles: Troubles,
        url: str,
        wake: Callable[[], None],
    ) -> None:
        self._delivery = delivery
        self._link = link
        self._outbox = outbox
        self._wake = wake
        outages = Outages(delivery.sender.database, troubles)
        self._uploads = Uploads(outbox, outages, url, wake) if url else None
        self._downloads = Downloads(outages, self._supply, self._tell_delay)
        self._delayed: set[str] = set()
        """Steps whose records say that they wait for values from outside."""

    def connect(self) -> None:
        """Begin to reach the store in the background: the worker starts without it."""
        if self._uploads is not None:
            self._uploads.connect()

    @property
    def intake(self) -> Intake:
        """Where attempts put what is to be recorded."""
        return self._uploads or self._outbox

    @property
    def claims(self) -> list[Claim]:
        """The claims of steps that wait for values."""
        return [each.claim for each in self._delivery.waiting_room.steps]

    @property
    def more_running(self) -> int:
        """By how many attempts more, or fewer, the worker counts than are in flight.

        An attempt that is over and waits for the store takes up no slot, nor does a step that waits
        for values; both within bounds. A step that is to run isolated counts: nothing may be started
        beside it.
        """
        waiting = self._delivery.waiting_room.steps
        isolated = sum(each.is_alone for each in waiting)
        ended = 0 if self._uploads is None else self._uploads.ended
        beyond = max(len(waiting) - MOST_WAITING, 0)
        return beyond + isolated + self._delivery.unequipped - ended

    def is_stranded(self, attempts: int) -> bool:
        """Whether so many attempts are all over and wait for a store that does not answer."""
        uploads = self._uploads
        return uploads is not None and uploads.is_stranded and uploads.ended >= attempts

    def note_turn(self, delivered: CommitResult) -> None:
        """Take note of what a turn settled and started, and fetch what its attempts miss."""
        if self._uploads is not None:
            for settle, _ in delivered.turned.settled:
                self._uploads.forget(settle.claim)
        if self._delayed:
            for claimed in delivered.attempts:
                self._tell_proceeding(claimed)
        if self._delivery.waiting_room.steps or self._downloads.is_busy:
            self._downloads.fetch(self._delivery.waiting_room.wanted)

    async def note_look(self, look: Look) -> bool:
        """Let go of waiting steps whose claims are gone; give back those of failing tasks.

        Return whether one of them was to run isolated.
        """
        if not self._delivery.waiting_room.steps:
            return False
        gone = await self._abandon(look.stops)
        stopped = {
            each.step.id
            for each in self._delivery.waiting_room.steps
            if each.step.id in look.failing
            and each.locked.definition(each.step).run_on == "success"
        }
        returned = await self._abandon(stopped)
        for each in returned:
            outcome = Returned("another step failed")
            self._outbox.add_settle(Completion(each.claim, each.locked.graph, outcome))
        return any(each.is_alone for each in (*gone, *returned))

    def close(self) -> None:
        """Give up waiting: what could not be stored outside is kept in the database itself."""
        self._downloads.close()
        if self._uploads is not None:
            notes, settles = self._uploads.take_all()
            for note in notes:
                self._outbox.add_note(note)
            for settle in settles:
                self._outbox.add_settle(settle)

    async def _supply(self, address: str, content: bytes | None) -> None:
        """Hand a value from outside to the steps that wait for it."""
        await self._link.run(lambda: self._delivery.supply(address, content))
        self._wake()

    def _tell_delay(self, address: str, message: str) -> None:
        """Say on the records of the steps that wait for a value why they do."""
        for each in self._delivery.waiting_room.steps:
            if address in each.missing and each.step.id not in self._delayed:
                self._delayed.add(each.step.id)
                delay = {"store": store_of(address), "error": message}
                self._outbox.add_note(JournalEntry(each.claim, each.locked.graph, delay=delay))
                self._wake()

    def _tell_proceeding(self, claimed: AttemptInput) -> None:
        if claimed.step_id in self._delayed:
            self._delayed.discard(claimed.step_id)
            self._outbox.add_note(JournalEntry(claim_of(claimed), claimed.graph, delay={}))
            self._wake()

    async def _abandon(self, step_ids: Collection[str]) -> list[Unfetched]:
        if not step_ids:
            return []
        self._delayed.difference_update(step_ids)
        return await self._link.run(lambda: self._delivery.waiting_room.abandon(step_ids))
