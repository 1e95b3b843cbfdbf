"""The attempts in flight of one worker, and the journal through which they get things recorded."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol

from agent.steps.attempt import runner
from agent.steps.attempt.services import Services
from agent.steps.types.attempt_input import AttemptInput, BudgetRefusedError, RevokedError, Signals
from agent.steps.types.call_records import CallResult, Intent
from agent.steps.types.errors import DefiniteFailure
from agent.steps.types.outcome import Json, Outcome, Succeeded
from agent.store.db import json_values
from agent.tasks.commit.batch import Completion, JournalEntry
from agent.tasks.rules.settlement import Claim

current_attempt: ContextVar[AttemptInput] = ContextVar("current_attempt")
"""What the tasks and callbacks of an attempt belong to, also those that its code starts."""


class Intake(Protocol):
    """Where attempts put what is to be recorded: the outbox, or what stands before it."""

    def add_settle(self, settle: Completion, size: int = 0) -> None:
        """Queue an outcome; `size` is about how many bytes it will write."""

    def add_note(self, note: JournalEntry) -> None:
        """Queue what a running attempt wants recorded."""

    def add_log(self, row: Sequence[Any]) -> None:
        """Queue a piece of a log."""

    async def keep(self, claim: Claim, text: str) -> str | None:
        """Store a large request ahead of its intent; return why that cannot be done now."""


@dataclass(slots=True, eq=False)
class Attempt:
    """One attempt in flight; it holds its slot until its outcome is committed."""

    claimed: AttemptInput
    claim: Claim
    signals: Signals = field(default_factory=Signals)
    task: "asyncio.Task[None] | None" = None
    is_alone: bool = False


def claim_of(claimed: AttemptInput) -> Claim:
    """Return the claim under which an attempt runs."""
    parallel_index = -1 if claimed.parallel_index is None else claimed.parallel_index
    return Claim(
        claimed.task.id,
        claimed.step_id,
        claimed.graph.index_of[claimed.step.name],
        parallel_index,
        claimed.attempt,
        claimed.claim_token,
    )


class Attempts:
    """Starts attempts, hands their outcomes to the outbox, and tells them to pause or stop."""

    def __init__(self, services: Services, outbox: Intake, wake: Callable[[], None]) -> None:
        self._services = services
        self._outbox = outbox
        self._wake = wake
        self._by_step: dict[str, Attempt] = {}

    def __len__(self) -> int:
        return len(self._by_step)

    def __iter__(self) -> Iterator[Attempt]:
        return iter(list(self._by_step.values()))

    def start(self, claimed: AttemptInput, *, is_alone: bool) -> None:
        """Begin an attempt."""
        attempt = Attempt(claimed, claim_of(claimed), is_alone=is_alone)
        self._by_step[claimed.step_id] = attempt
        attempt.task = asyncio.create_task(self._run(attempt))

    async def _run(self, attempt: Attempt) -> None:
        current_attempt.set(attempt.claimed)
        try:
            outcome = await runner.run(attempt.claimed, attempt.signals, self._services)
        except asyncio.CancelledError:
            # The worker ends in the middle of something: what it did is for others to find out.
            return
        self._finish(attempt, outcome)

    def _finish(self, attempt: Attempt, outcome: Outcome) -> None:
        settle = Completion(attempt.claim, attempt.claimed.graph, outcome)
        self._outbox.add_settle(settle, _size(outcome))
        self._wake()

    def settled(self, claim: Claim) -> Attempt | None:
        """Free the slot of an attempt whose outcome is committed."""
        attempt = self._by_step.get(claim.step_id)
        if attempt is None or attempt.claim.token != claim.token:
            return None
        return self._by_step.pop(claim.step_id)

    def stop(self, step_id: str, reason: str) -> None:
        """Ask one attempt to stop, if it is in flight here."""
        attempt = self._by_step.get(step_id)
        if attempt is not None and not attempt.signals.is_stopping:
            attempt.signals.stop_for(reason)

    def pause(self, step_id: str) -> None:
        """Ask one attempt to pause at its next checkpoint."""
        attempt = self._by_step.get(step_id)
        if attempt is not None:
            attempt.signals.is_pausing = True

    def unpause(self, step_ids: set[str]) -> None:
        """Let attempts go on whose tasks are no longer paused."""
        for step_id, attempt in self._by_step.items():
            if step_id not in step_ids:
                attempt.signals.is_pausing = False

    def stop_all(self, reason: str) -> None:
        """Ask every attempt to stop."""
        for step_id in list(self._by_step):
            self.stop(step_id, reason)

    @property
    def are_out_of_hand(self) -> bool:
        """Whether something goes on that nobody awaits any more."""
        return any(
            attempt.signals.is_out_of_hand or not (attempt.task and attempt.task.done())
            for attempt in self
        )


def _size(outcome: Outcome) -> int:
    """Return about how many bytes an outcome writes; only an output can be large."""
    return len(outcome.text or "") if isinstance(outcome, Succeeded) else 0


class WorkerJournal:
    """Lets attempts record intents, results, checkpoints and logs through the worker's turns."""

    def __init__(self, outbox: Intake, wake: Callable[[], None], now: Callable[[], int]) -> None:
        self._outbox = outbox
        self._wake = wake
        self._now = now
        self._waiting: dict[JournalEntry, asyncio.Future[bool]] = {}

    async def intend(self, claimed: AttemptInput, intent: Intent) -> None:
        """Return once the intent is durable; raise `RevokedError` if the claim is gone."""
        await self._record(JournalEntry(claim_of(claimed), claimed.graph, intent=intent))

    async def keep(self, claimed: AttemptInput, text: str) -> str | None:
        """Store a large request ahead of its intent; return why that cannot be done now."""
        return await self._outbox.keep(claim_of(claimed), text)

    def resolve(self, claimed: AttemptInput, result: CallResult) -> None:
        """Queue a call's result; it is recorded before or with the attempt's outcome."""
        self._outbox.add_note(JournalEntry(claim_of(claimed), claimed.graph, result=result))
        self._wake()

    async def checkpoint(self, claimed: AttemptInput, value: Json) -> None:
        """Return once the checkpoint is durable; raise `RevokedError` if the claim is gone."""
        text = json_values.encode(value, "checkpoint")
        await self._record(JournalEntry(claim_of(claimed), claimed.graph, checkpoint=text))

    def log(self, claimed: AttemptInput, stream: str, text: str) -> None:
        """Queue a piece of the step's log; it rides the next turn."""
        # Logs must not fail a turn: what a database cannot keep is replaced.
        text = text.replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")
        row = (claimed.task.id, claimed.step_id, claimed.attempt, self._now(), stream, text)
        self._outbox.add_log(row)

    async def _record(self, note: JournalEntry) -> None:
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting[note] = future
        self._outbox.add_note(note)
        self._wake()
        try:
            is_recorded = await future
        finally:
            self._waiting.pop(note, None)
        if not is_recorded and (refusal := note.refusal) is not None:
            raise BudgetRefusedError(refusal.code, refusal.message, must_fail=refusal.must_fail)
        if note.problem is not None:
            text = f"what it is about to do cannot be recorded: {note.problem}"
            raise DefiniteFailure(text, code="not_recorded", kind="internal")
        if not is_recorded:
            raise RevokedError("the claim on this step is gone")

    def answer(self, note: JournalEntry, is_recorded: bool) -> None:
        """Tell whoever waits for a note that it is durable, or refused."""
        future = self._waiting.get(note)
        if future is not None and not future.done():
            future.set_result(is_recorded)

    def refuse_all(self) -> None:
        """Refuse everything that is waiting: this worker's claims are gone."""
        for future in self._waiting.values():
            if not future.done():
                future.set_result(False)
