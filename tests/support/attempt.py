"""A step's life without a database: a journal in memory, and attempts that follow one another."""

import asyncio
import itertools
import sys
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, TypeVar

from agent.core.clock import SECOND, Clock
from agent.core.state_machine import CallStatus
from agent.core.waits import EndedWait
from agent.steps.attempt import runner
from agent.steps.attempt.services import Limits, Services
from agent.steps.types.attempt_input import AttemptInput, RevokedError, Signals, TaskView, Upstream
from agent.steps.types.call_records import CallResult, Intent, RecordedCall
from agent.steps.types.outcome import (
    Json,
    Outcome,
    Paused,
    Question,
    Retry,
    StepError,
    Waiting,
    WorkOffer,
)
from agent.steps.types.snapshot import SnapshotOperation
from agent.steps.types.state_values import StateOperation
from agent.workflows.graph import Graph, Step

T = TypeVar("T")

PATIENCE_SECONDS = 60

_functions = sys.modules.setdefault("functions_under_test", ModuleType("functions_under_test"))
_numbers = itertools.count()


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, with patience but not for ever."""

    async def bounded() -> T:
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await work

    return asyncio.run(bounded())


async def until(condition: Callable[[], object]) -> None:
    """Wait for a condition that something else brings about."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        # Threads and processes bring it about, which set no event of this loop.
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def skip_time(seconds: float) -> None:
    """Move the event loop's clock on, so that a timeout fires without being waited for."""
    loop = asyncio.get_running_loop()
    now = loop.time
    setattr(loop, "time", lambda: now() + seconds)  # noqa: B010 - a method, to mypy


def callable_name(function: Callable[..., Any]) -> str:
    """Make a function known to `python` steps and return what names it."""
    name = f"function_{next(_numbers)}"
    setattr(_functions, name, function)
    return f"functions_under_test:{name}"


class HandClock(Clock):
    """A clock that a test moves on."""

    def __init__(self) -> None:
        super().__init__()
        self.skew_us = 0

    def now(self) -> int:
        return super().now() + self.skew_us

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.skew_us += int(seconds * SECOND)


class MemoryJournal:
    """Records in memory what the worker's journal would make durable."""

    def __init__(self) -> None:
        self.intents: list[tuple[int, Intent]] = []
        self.results: list[CallResult] = []
        self.checkpoints: list[Json] = []
        self.logs: list[tuple[str, str]] = []
        self.on_intend: Callable[[Intent], None] | None = None
        self.is_held = False
        self.is_revoked = False

    async def intend(self, claimed: AttemptInput, intent: Intent) -> None:
        if self.is_held:
            await asyncio.Event().wait()
        if self.is_revoked:
            raise RevokedError("the claim is gone")
        self.intents.append((claimed.attempt, intent))
        if self.on_intend is not None:
            self.on_intend(intent)

    async def keep(self, claimed: AttemptInput, text: str) -> str | None:
        return None

    def resolve(self, claimed: AttemptInput, result: CallResult) -> None:
        self.results.append(result)

    async def operate(
        self, claimed: AttemptInput, intent: Intent, operation: StateOperation | SnapshotOperation
    ) -> Json:
        """Record an answer as if the value had never been written."""
        await self.intend(claimed, intent)
        answer: dict[str, Json] = {"snapshot": f"snapshot:{intent.number}"}
        if isinstance(operation, StateOperation):
            answer = {"version": 0 if operation.kind == "get" else 1, "written": True}
        self.results.append(
            CallResult(intent.call_id, intent.idempotency_key, CallStatus.SUCCEEDED, answer)
        )
        return answer

    async def checkpoint(self, claimed: AttemptInput, value: Json) -> None:
        if self.is_revoked:
            raise RevokedError("the claim is gone")
        self.checkpoints.append(value)

    def log(self, claimed: AttemptInput, stream: str, text: str) -> None:
        self.logs.append((stream, text))

    @property
    def log_text(self) -> str:
        """The whole log as one text."""
        return "\n".join(text for _, text in self.logs)

    def records(self) -> list[RecordedCall]:
        """Return the ledger as the next attempt is given it."""
        results = {result.call_id: result for result in self.results}
        records = []
        for attempt, intent in self.intents:
            result = results.get(intent.call_id)
            error = result.error.document(attempt) if result and result.error else None
            records.append(
                RecordedCall(
                    call_id=intent.call_id,
                    number=intent.number,
                    attempt=attempt,
                    action=intent.action,
                    idempotency_key=intent.idempotency_key,
                    remote_key=intent.remote_key,
                    request_hash=intent.request_hash,
                    status=result.status if result else CallStatus.UNKNOWN,
                    response=result.response if result else None,
                    error=error,
                    on_unknown=intent.on_unknown,
                    expires_at=intent.expires_at,
                )
            )
        return records

    def resolve_by_person(
        self, status: CallStatus, response: Json = None, error: StepError | None = None
    ) -> None:
        """Resolve the last call as an operator would."""
        _, intent = self.intents[-1]
        self.results.append(
            CallResult(
                intent.call_id,
                intent.idempotency_key,
                status,
                response,
                error,
                is_resolved_by_check=True,
            )
        )

    @property
    def statuses(self) -> list[CallStatus]:
        """The ledger's statuses, by call."""
        return [record.status for record in self.records()]


@dataclass
class Trial:
    """One step and its attempts; each sees what the earlier ones left."""

    kind: str
    config: dict[str, Json]
    options: dict[str, Any] = field(default_factory=dict)
    limits: Limits = field(default_factory=lambda: Limits(kill_grace_seconds=0.5))
    inputs: dict[str, Json] = field(default_factory=dict)
    upstream: dict[str, Upstream] = field(default_factory=dict)
    claim: dict[str, Any] = field(default_factory=dict)
    task: dict[str, Any] = field(default_factory=dict)
    max_attempts: int = 3

    def __post_init__(self) -> None:
        self.clock = HandClock()
        self.journal = MemoryJournal()
        self.services = Services(self.clock, self.journal, self.limits)
        self.signals = Signals()
        self.step = Step(name="it", kind=self.kind, config=self.config, **self.options)
        self.graph = Graph(name="trial", steps=[self.step])
        self.attempt_number = 1
        self.failures = 0
        self.checkpoint: Json = None
        self.waited: EndedWait | None = None

    def claimed(self) -> AttemptInput:
        """Return what the next attempt is given."""
        view: dict[str, Any] = {
            "id": "task-1",
            "workflow": "trial",
            "version": 1,
            "input": self.inputs,
            "trigger": None,
            "origin_id": "task-1",
            "created_at": 0,
            "deadline": None,
            **self.task,
        }
        return AttemptInput(
            **{
                "task": TaskView(**view),
                "graph": self.graph,
                "step": self.graph.steps[0],
                "step_id": "step-1",
                "attempt": self.attempt_number,
                "max_attempts": self.max_attempts,
                "claim_token": 1,
                "is_group": False,
                "checkpoint": self.checkpoint,
                "waited": self.waited,
                "failures": self.failures,
                "upstream": self.upstream,
                "calls": self.journal.records(),
                **self.claim,
            }
        )

    async def attempt(self) -> Outcome:
        """Run one attempt and leave the step as the engine would."""
        self.signals = Signals()
        outcome = await runner.run(self.claimed(), self.signals, self.services)
        if self.journal.checkpoints:
            self.checkpoint = self.journal.checkpoints[-1]
        match outcome:
            case Retry():
                self.attempt_number += 1
                self.failures += 0 if outcome.is_unknown else 1
            case Waiting():
                self.checkpoint = outcome.checkpoint
                on = outcome.on
                self.waited = None if isinstance(on, Question | WorkOffer) else EndedWait(on)
            case Paused():
                self.checkpoint = outcome.checkpoint
        return outcome

    def crash(self) -> None:
        """Lose the attempt, as when its worker dies: no outcome, one attempt more."""
        self.attempt_number += 1

    def pass_expiry(self) -> None:
        """Let the time pass in which the last call may still have been under way."""
        _, intent = self.journal.intents[-1]
        self.clock.skew_us += max(intent.expires_at - self.clock.now(), 0) + 1


def python(function: Callable[..., Any], **options: Any) -> Trial:
    """Return a trial of a `python` step."""
    config = {"call": callable_name(function), **options.pop("config", {})}
    return Trial("python", config, **options)
