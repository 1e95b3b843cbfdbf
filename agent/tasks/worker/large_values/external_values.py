"""The large values of a worker outside the database: uploads, downloads, and the steps that wait.

Everything here runs in the worker's loop, except for what it passes to the database thread.
"""

import asyncio
from collections.abc import Callable, Collection
from typing import Final

from agent.core.thread_bridge import ThreadBridge
from agent.steps.types.outcome import Json, Returned
from agent.store.artifacts.blobs import store_of
from agent.tasks.commit.batch import CommitResult, Completion, JournalEntry
from agent.tasks.commit.blocked_steps import BlockedStep
from agent.tasks.commit.committer import Committer, PollResult
from agent.tasks.rules.settlement import Claim
from agent.tasks.state.isolation import NOT_ISOLATED, WAITS_FOR_STORE
from agent.tasks.worker.attempts import RecordQueue
from agent.tasks.worker.health import Health
from agent.tasks.worker.large_values.downloads import Downloads
from agent.tasks.worker.large_values.outages import Outages
from agent.tasks.worker.large_values.uploads import Uploads
from agent.tasks.worker.outbox import Outbox

MOST_WAITING: Final = 1000
"""How many steps may wait for a download without taking up a slot."""


class ExternalValues:
    """Moves large values to and from stores outside the database, without delaying commits."""

    def __init__(
        self,
        committer: Committer,
        thread: ThreadBridge,
        outbox: Outbox,
        health: Health,
        url: str,
        wake: Callable[[], None],
    ) -> None:
        self._committer = committer
        self._blocked = committer.blocked
        self._thread = thread
        self._outbox = outbox
        self._wake = wake
        outages = Outages(committer.database, health)
        self._uploads = Uploads(outbox, outages, url, wake) if url else None
        self._downloads = Downloads(outages, self._prepare, self._supply, self._record_delay)
        self._arrived: set[str] = set()
        """Addresses whose values were downloaded, and are wanted still."""
        self._recording: dict[JournalEntry, asyncio.Future[None]] = {}
        """Entries after whose commit a value may be supplied."""
        self._delayed: set[str] = set()
        """Steps with a `step.delayed` event that no `step.proceeded` has followed."""

    def connect(self) -> None:
        """Connect to the store in the background: the worker starts without it."""
        if self._uploads is not None:
            self._uploads.connect()

    @property
    def queue(self) -> RecordQueue:
        """The queue of completions and journal entries for the next commits."""
        return self._uploads or self._outbox

    @property
    def claims(self) -> list[Claim]:
        """The claims of steps that wait for a download."""
        return [blocked.claim for blocked in self._blocked.steps]

    @property
    def more_running(self) -> int:
        """How many more attempts run than are in flight.

        A step that waits for a download takes up no slot, within bounds. One that will run isolated counts:
        nothing may start beside it.
        """
        waiting = self._blocked.steps
        isolated = sum(blocked.is_isolated for blocked in waiting)
        beyond = max(len(waiting) - MOST_WAITING, 0)
        return beyond + isolated + self._committer.pending_attempts

    @property
    def ended(self) -> int:
        """How many attempts are over and wait for their uploads: they take up no slot, within bounds."""
        return 0 if self._uploads is None else self._uploads.ended

    @property
    def returned(self) -> int:
        """How many of these have that on record, so that they are no cause of a crash."""
        return 0 if self._uploads is None else self._uploads.returned

    def is_stranded(self, attempts: int) -> bool:
        """Whether this number of attempts is over and waits for a store that does not answer."""
        uploads = self._uploads
        return uploads is not None and uploads.is_stranded and uploads.ended >= attempts

    def has_returned(self, claim: Claim) -> bool:
        """Whether it is on record that an attempt is over and only waits for its upload."""
        return self._uploads is not None and self._uploads.has_returned(claim)

    def reset(self) -> None:
        """Forget the steps that wait: this worker's claims are gone."""
        self._delayed.clear()

    def note_commit(self, committed: CommitResult) -> None:
        """Drop the stored values of settled attempts, and download the values that blocked steps need."""
        if self._uploads is not None:
            for completion, _ in committed.result.settled:
                self._uploads.forget(completion.claim)
            for entry, is_recorded in committed.result.journaled:
                if is_recorded:
                    self._uploads.note_recorded(entry)
        if self._recording:
            for entry, _ in committed.result.journaled:
                if entry in self._recording:
                    self._recording.pop(entry).set_result(None)
        if self._blocked.steps or self._downloads.is_busy:
            wanted = self._blocked.wanted
            self._arrived &= wanted
            self._downloads.fetch(wanted)

    async def note_poll(self, poll: PollResult) -> bool:
        """Drop blocked steps whose claims are gone; return those of failing tasks unstarted.

        Return whether one of them was to run isolated.
        """
        if not self._blocked.steps:
            return False
        gone = await self._abandon(poll.lost_claims)
        stopped = {
            blocked.step.id
            for blocked in self._blocked.steps
            if blocked.step.id in poll.failing_steps
            and blocked.locked.definition(blocked.step).run_on == "success"
        }
        returned = await self._abandon(stopped)
        for blocked in returned:
            outcome = Returned("another step failed")
            self._outbox.add_completion(Completion(blocked.claim, blocked.locked.graph, outcome))
        return any(blocked.is_isolated for blocked in (*gone, *returned))

    def close(self) -> None:
        """Stop waiting: values that were not uploaded go into the database itself."""
        self._downloads.close()
        if self._uploads is not None:
            entries, completions = self._uploads.take_all()
            for entry in entries:
                self._outbox.add_entry(entry)
            for completion in completions:
                self._outbox.add_completion(completion)

    async def _prepare(self, address: str) -> None:
        """Before a value is supplied: record of the steps that then start that their delay is over.

        From then on a crash may be theirs, so that must be on record before their code runs.
        """
        self._arrived.add(address)
        there = self._arrived | self._blocked.fetched.contents.keys()
        entries = []
        for blocked in self._blocked.steps:
            if blocked.step.id in self._delayed and blocked.missing <= there:
                self._delayed.discard(blocked.step.id)
                entries.append(_delay_entry(blocked, {}, NOT_ISOLATED))
        loop = asyncio.get_running_loop()
        for entry in entries:
            self._recording[entry] = loop.create_future()
            self._outbox.add_entry(entry)
        if entries:
            self._wake()
            await asyncio.gather(*(self._recording[entry] for entry in entries))

    async def _supply(self, address: str, content: bytes | None) -> None:
        """Pass a downloaded value to the steps that wait for it."""
        await self._thread.run(lambda: self._committer.supply(address, content))
        self._wake()

    def _record_delay(self, address: str, message: str) -> None:
        """Record for each step that waits for a value why it does."""
        for blocked in self._blocked.steps:
            if address in blocked.missing and blocked.step.id not in self._delayed:
                self._delayed.add(blocked.step.id)
                delay: dict[str, Json] = {"store": store_of(address), "error": message}
                self._outbox.add_entry(_delay_entry(blocked, delay, WAITS_FOR_STORE))
                self._wake()

    async def _abandon(self, step_ids: Collection[str]) -> list[BlockedStep]:
        if not step_ids:
            return []
        self._delayed.difference_update(step_ids)
        return await self._thread.run(lambda: self._blocked.abandon(step_ids))


def _delay_entry(blocked: BlockedStep, delay: dict[str, Json], alone: int) -> JournalEntry:
    """Return the record of a delay; an isolated step stays isolated, since nothing starts beside it."""
    kept = None if blocked.is_isolated else alone
    return JournalEntry(blocked.claim, blocked.locked.graph, delay=delay, alone=kept)
