"""The input of an attempt, read from its task and step at the claim; and the journal it records to."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from agent.core.chat_origin import ChatOrigin
from agent.core.plain_json import Json
from agent.core.waits import EndedWait
from agent.steps.types.call_records import CallResult, Intent, RecordedApproval, RecordedCall
from agent.steps.types.outcome import Outcome
from agent.steps.types.snapshot import SnapshotOperation
from agent.steps.types.state_values import StateOperation, StateValue
from agent.steps.types.value_sizes import SMALL_BYTES, is_small
from agent.store.db.json_values import decode
from agent.workflows.graph import Graph, Step


@dataclass(frozen=True, slots=True)
class TaskView:
    """The task, as a step sees it."""

    id: str
    workflow: str
    version: int
    input: dict[str, Json]
    trigger: Json
    origin_id: str
    created_at: int
    deadline: int | None
    depth: int = 0
    source_path: str | None = None
    """The workflow file; `python` steps find their modules beside it."""
    chat_origin: ChatOrigin | None = None
    """Where in a chat the task, or the one that it comes from, was started."""


class Upstream:
    """An ended step, as templates and functions see it. Its output is decoded at the first use."""

    __slots__ = ("_output", "_text", "error", "status")

    def __init__(
        self,
        status: str,
        output: Json = None,
        error: dict[str, Json] | None = None,
        *,
        text: str | None = None,
    ) -> None:
        """Take the output as a value, or as its stored text."""
        self.status = status
        self.error = error
        self._output = output
        self._text = text

    @property
    def is_small(self) -> bool:
        """Whether its output may be decoded and processed on the event loop."""
        text = self._text
        return is_small(self._output) if text is None else len(text) <= SMALL_BYTES

    @property
    def output(self) -> Json:
        """The step's output."""
        # Attempts in several threads may read this at once, so the text is dropped last.
        text = self._text
        if text is not None:
            self._output = decode(text)
            self._text = None
        return self._output


@dataclass(slots=True, eq=False)
class AttemptInput:
    """One claimed step: the identity of the attempt and its data. It is never changed."""

    task: TaskView
    graph: Graph
    step: Step
    step_id: str
    attempt: int
    max_attempts: int
    claim_token: int
    is_group: bool
    """True when this attempt only decides the items of a `foreach` or `parallel` step."""
    parallel_index: int | None = None
    parallel_count: int | None = None
    item: Json = None
    checkpoint: Json = None
    waited: EndedWait | None = None
    """The wait that a woken step had, with its result."""
    deadline: int | None = None
    """When the step's own time budget is over."""
    failures: int = 0
    """Definite failures so far; part of the key for a remote."""
    last_error: dict[str, Json] | None = None
    """The error of the attempt before this one, if it failed."""
    upstream: dict[str, Upstream] = field(default_factory=dict)
    calls: list[RecordedCall] = field(default_factory=list)
    approvals: list[RecordedApproval] = field(default_factory=list)
    """The earlier questions of this step to people, the oldest first."""
    state: dict[str, StateValue] = field(default_factory=dict)
    """The values of `state` that it reads, by name, as recorded at the step's first claim."""
    now: int | None = None
    """When the step was first claimed: `now` in its templates. None where they do not read it."""
    workflows: dict[str, dict[str, Json]] = field(default_factory=dict)
    """The description and the inputs of each workflow that a tool of an agent names."""

    @property
    def pauses_when_time_is_over(self) -> bool:
        """Whether the end of the step's time budget pauses the task instead of failing the step."""
        if self.deadline is None:
            return False
        return bool((self.step.budget or {}).get("on_exhausted", "pause") == "pause")

    @property
    def may_act(self) -> bool:
        """Whether this attempt may begin effects; the ones after the last only use recorded results."""
        return self.attempt <= self.max_attempts


class Signals:
    """Signals from the engine to an attempt in flight: pause at a checkpoint, or stop now."""

    __slots__ = (
        "has_runaway_thread",
        "is_pausing",
        "is_stopping",
        "on_outlived",
        "on_stop",
        "stop_reason",
    )

    def __init__(self) -> None:
        self.is_pausing = False
        self.is_stopping = False
        self.stop_reason = ""
        self.on_stop: Callable[[], None] | None = None
        """Called when the attempt should stop."""
        self.has_runaway_thread = False
        """Set by the attempt: a thread of it is still running and cannot be stopped."""
        self.on_outlived: Callable[[Outcome, str], None] | None = None
        """Called when the attempt is over while a thread of it runs: with its outcome and the function's name."""

    def stop_for(self, reason: str) -> None:
        """Make the attempt stop; the reason is for its log."""
        self.stop_reason = reason
        self.is_stopping = True
        if self.on_stop is not None:
            self.on_stop()


class RevokedError(Exception):
    """The claim is gone (cancelled, reassigned, timed out): this attempt may do nothing more."""


class BudgetRefusedError(Exception):
    """A budget does not allow the call; its task was paused, or the step must fail."""

    def __init__(self, code: str, message: str, *, must_fail: bool) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.must_fail = must_fail


class Journal(Protocol):
    """Where an attempt records its calls; the worker's implementation adds them to its commits."""

    async def intend(self, attempt_input: AttemptInput, intent: Intent) -> None:
        """Return once the intent is durable; raise `RevokedError` if the claim is gone.

        Raise `BudgetRefusedError` if its reservation is more than a budget has left.
        """

    async def keep(self, attempt_input: AttemptInput, text: str) -> str | None:
        """Store a large request ahead of its intent; return the reason if that is not possible now."""

    async def operate(
        self,
        attempt_input: AttemptInput,
        intent: Intent,
        operation: StateOperation | SnapshotOperation,
    ) -> Json:
        """Use `state` or append a snapshot, and record the answer as the call's result; return the answer.

        Raise `RevokedError` if the claim is gone, `DefiniteFailure` if the value is refused.
        """

    def resolve(self, attempt_input: AttemptInput, result: CallResult) -> None:
        """Queue a call's result; it is recorded before or with the attempt's outcome."""

    async def checkpoint(self, attempt_input: AttemptInput, value: Json) -> None:
        """Return once the step's checkpoint is durable; raise `RevokedError` if the claim is gone."""

    def log(self, attempt_input: AttemptInput, stream: str, text: str) -> None:
        """Queue a piece of the step's log; never waits."""
