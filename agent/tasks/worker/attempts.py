"""The attempts in flight of one worker."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Protocol

import structlog

from agent.steps.attempt import runner, spans
from agent.steps.attempt.outcome_rules import SHUTDOWN, thread_remark
from agent.steps.attempt.services import Services
from agent.steps.types.attempt_input import AttemptInput, Signals
from agent.steps.types.outcome import Json, Outcome, Retry, Returned, Succeeded
from agent.tasks.commit.batch import Completion, JournalEntry
from agent.tasks.rules.settlement import Claim
from agent.tasks.state.rows import NO_ITEM
from agent.tasks.worker.health import Health

log = structlog.get_logger(__name__)

RETURN_SECONDS: Final = 15.0
"""How long a step rests that is claimed while a thread of its last attempt runs."""

current_attempt: ContextVar[AttemptInput] = ContextVar("current_attempt")
"""The attempt that asyncio tasks and callbacks belong to, also those that its code starts."""


class RecordQueue(Protocol):
    """Where attempts put what the next commits record: the outbox, or the uploads before it."""

    def add_completion(self, completion: Completion, size: int = 0) -> None:
        """Queue a completion; `size` is about how many bytes it writes."""

    def add_entry(self, entry: JournalEntry) -> None:
        """Queue a record of a running attempt."""

    def add_log(self, row: Sequence[Any], *, can_wait: bool = False) -> None:
        """Queue a piece of a log; with `can_wait` it makes no commit of its own."""

    async def keep(self, claim: Claim, text: str) -> str | None:
        """Store a large request before its intent; return why that is not possible now."""


@dataclass(slots=True, eq=False)
class Attempt:
    """One attempt in flight; it holds its slot until its completion is committed."""

    attempt_input: AttemptInput
    claim: Claim
    signals: Signals = field(default_factory=Signals)
    task: "asyncio.Task[None] | None" = None
    thread: str | None = None
    """After the attempt's time: the function that still runs in its thread."""
    has_ended_early: bool = False
    """Whether its outcome is on its way to a commit while its thread runs."""


def claim_of(attempt_input: AttemptInput) -> Claim:
    """Return the claim under which an attempt runs."""
    parallel_index = (
        NO_ITEM if attempt_input.parallel_index is None else attempt_input.parallel_index
    )
    return Claim(
        attempt_input.task.id,
        attempt_input.step_id,
        attempt_input.graph.index_of[attempt_input.step.name],
        parallel_index,
        attempt_input.attempt,
        attempt_input.claim_token,
    )


class Attempts:
    """Starts attempts, queues their completions, and asks them to pause or stop."""

    def __init__(
        self, services: Services, queue: RecordQueue, wake: Callable[[], None], health: Health
    ) -> None:
        self._services = services
        self._queue = queue
        self._wake = wake
        self._health = health
        self._by_step: dict[str, Attempt] = {}
        self._outlived: dict[str, Attempt] = {}
        """By step: attempts that have ended on record, and whose threads keep their slots."""
        self.ending_early = 0
        """How many outcomes are on their way to a commit that will free no slot."""
        self.isolated: list[Attempt] = []
        """Attempts that run with nothing beside them."""

    def __len__(self) -> int:
        return len(self._by_step) + len(self._outlived)

    def __iter__(self) -> Iterator[Attempt]:
        return iter([*self._by_step.values(), *self._outlived.values()])

    def start(self, attempt_input: AttemptInput, *, is_isolated: bool) -> None:
        """Begin an attempt."""
        attempt = Attempt(attempt_input, claim_of(attempt_input))
        step_id = attempt_input.step_id
        before = self._outlived.get(step_id) or self._by_step.get(step_id)
        if before is not None and (before.thread or before.signals.has_runaway_thread):
            # This worker had lost its claim on the step, and has another one now.
            self._outlived[step_id] = before
        self._by_step[step_id] = attempt
        if is_isolated:
            self.isolated.append(attempt)
        if step_id in self._outlived:
            self._finish(
                attempt, Returned("its last attempt still runs in a thread", RETURN_SECONDS)
            )
            return
        attempt.signals.on_outlived = partial(self._outlive, attempt)
        attempt.task = asyncio.create_task(self._run(attempt))

    async def _run(self, attempt: Attempt) -> None:
        current_attempt.set(attempt.attempt_input)
        try:
            running = runner.run(attempt.attempt_input, attempt.signals, self._services)
            if self._services.spans is not None:
                running = spans.traced(attempt.attempt_input, self._services, running)
            outcome = await running
        except asyncio.CancelledError:
            # The worker ends during an effect: the next attempt finds out what became of it.
            return
        finally:
            # A cycle would keep the attempt, with its task and its values, until the next collection.
            attempt.signals.on_outlived = None
        self._finish(attempt, outcome)

    def _outlive(self, attempt: Attempt, outcome: Outcome, name: str) -> None:
        """Let an attempt end at its time, although its thread runs on.

        No other attempt of the step may start before the thread has ended. So a step that has further
        attempts keeps its claim, and only says what it waits for.
        """
        attempt.thread = name
        self._report_outlived()
        if isinstance(outcome, Retry):
            has_next = attempt.claim.attempt < attempt.attempt_input.max_attempts
            if has_next or outcome.is_unknown:
                delay: dict[str, Json] = {"thread": name, "error": outcome.error.message}
                graph = attempt.attempt_input.graph
                self._queue.add_entry(JournalEntry(attempt.claim, graph, delay=delay))
                self._wake()
                return
        self._end_early(attempt, outcome)

    def _end_early(self, attempt: Attempt, outcome: Outcome) -> None:
        attempt.has_ended_early = True
        self.ending_early += 1
        self._finish(attempt, outcome, is_early=True)

    def _report_outlived(self) -> None:
        """Tell people of the threads that keep slots after their attempts' time."""
        names = sorted({attempt.thread for attempt in self if attempt.thread is not None})
        if names:
            if self._health.report("threads", thread_remark(", ".join(names))):
                log.warning("attempts.outlived", functions=names)
        else:
            self._health.resolve("threads")

    def _finish(self, attempt: Attempt, outcome: Outcome, *, is_early: bool = False) -> None:
        completion = Completion(attempt.claim, attempt.attempt_input.graph, outcome, is_early)
        self._queue.add_completion(completion, _size(outcome))
        self._wake()

    def remove(self, claim: Claim) -> Attempt | None:
        """Free the slot of an attempt whose completion is committed, unless its thread keeps that."""
        for attempts in (self._by_step, self._outlived):
            attempt = attempts.get(claim.step_id)
            if attempt is not None and attempt.claim.token == claim.token:
                del attempts[claim.step_id]
                if attempt.has_ended_early:
                    attempt.has_ended_early = False
                    self.ending_early -= 1
                    self._outlived[claim.step_id] = attempt
                    return None
                if attempt.thread is not None:
                    self._report_outlived()
                return attempt
        return None

    def stop(self, step_id: str, reason: str) -> None:
        """Ask one attempt to stop, if it is in flight here."""
        attempt = self._by_step.get(step_id)
        if attempt is not None and not attempt.signals.is_stopping:
            attempt.signals.stop_for(reason)
            if attempt.thread is not None and not attempt.has_ended_early and reason != SHUTDOWN:
                self._end_early(attempt, Returned(reason))

    def pause(self, step_id: str) -> None:
        """Ask one attempt to pause at its next checkpoint."""
        attempt = self._by_step.get(step_id)
        if attempt is not None:
            attempt.signals.is_pausing = True

    def unpause(self, step_ids: set[str]) -> None:
        """Let all attempts continue except these."""
        for step_id, attempt in self._by_step.items():
            if step_id not in step_ids:
                attempt.signals.is_pausing = False

    def stop_all(self, reason: str) -> None:
        """Ask every attempt to stop."""
        for step_id in list(self._by_step):
            self.stop(step_id, reason)

    @property
    def are_out_of_control(self) -> bool:
        """Whether something of an attempt keeps running that cannot be awaited."""
        return any(
            attempt.signals.has_runaway_thread or not (attempt.task and attempt.task.done())
            for attempt in self
        )


def _size(outcome: Outcome) -> int:
    """Return about how many bytes an outcome writes: only an output can be large."""
    return len(outcome.text or "") if isinstance(outcome, Succeeded) else 0
