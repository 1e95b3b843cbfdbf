"""Everything an attempt may know of its task and its step, read when it was claimed."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from agent.core.waits import EndedWait
from agent.steps.types.call_records import CallResult, Intent, RecordedApproval, RecordedCall
from agent.steps.types.outcome import Json
from agent.steps.types.value_sizes import SMALL_BYTES, is_small
from agent.store.db.json_values import decode
from agent.workflows.graph import Graph, Step


@dataclass(frozen=True, slots=True)
class TaskView:
    """What a step may see of its task."""

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
    """The workflow file, beside which `python` steps look for their modules."""


class Upstream:
    """An ended step, as templates and functions see it; most of them never look at its output."""

    __slots__ = ("_output", "_text", "error", "status")

    def __init__(
        self,
        status: str,
        output: Json = None,
        error: dict[str, Json] | None = None,
        *,
        text: str | None = None,
    ) -> None:
        """Take the output as a value, or as the text that is on record."""
        self.status = status
        self.error = error
        self._output = output
        self._text = text

    @property
    def is_small(self) -> bool:
        """Whether its output may be read and treated on the event loop."""
        text = self._text
        return is_small(self._output) if text is None else len(text) <= SMALL_BYTES

    @property
    def output(self) -> Json:
        """What the step gave."""
        # Attempts in several threads may ask at once: the text is taken once and dropped last.
        text = self._text
        if text is not None:
            self._output = decode(text)
            self._text = None
        return self._output


@dataclass(slots=True, eq=False)
class AttemptInput:
    """One claimed step: the identity of the attempt and what it works with; nobody changes it."""

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
    """What a woken step had waited on, with what came of it."""
    deadline: int | None = None
    """When the time of the step's own budget is over."""
    failures: int = 0
    """Definite failures so far: part of the key that a remote is given."""
    last_error: dict[str, Json] | None = None
    """How the attempt before this one ended, if it did not work."""
    upstream: dict[str, Upstream] = field(default_factory=dict)
    calls: list[RecordedCall] = field(default_factory=list)
    approvals: list[RecordedApproval] = field(default_factory=list)
    """What people were asked about this step before, the oldest first."""
    workflows: dict[str, dict[str, Json]] = field(default_factory=dict)
    """What the workflows that an agent's tools name are for, and what they take."""

    @property
    def pauses_when_time_is_over(self) -> bool:
        """Whether the end of the step's own time pauses the task, and fails nothing."""
        if self.deadline is None:
            return False
        return bool((self.step.budget or {}).get("on_exhausted", "pause") == "pause")

    @property
    def may_act(self) -> bool:
        """Whether this attempt may begin effects: the one after the last may only find out."""
        return self.attempt <= self.max_attempts


class Signals:
    """What the engine tells an attempt in flight: pause at a checkpoint, or stop now."""

    __slots__ = ("is_out_of_hand", "is_pausing", "is_stopping", "on_stop", "stop_reason")

    def __init__(self) -> None:
        self.is_pausing = False
        self.is_stopping = False
        self.stop_reason = ""
        self.on_stop: Callable[[], None] | None = None
        """Called once the attempt is asked to stop."""
        self.is_out_of_hand = False
        """Told by the attempt: a thread of it goes on, whatever it is asked."""

    def stop_for(self, reason: str) -> None:
        """Ask the attempt to stop; the reason is for its log."""
        self.stop_reason = reason
        self.is_stopping = True
        if self.on_stop is not None:
            self.on_stop()


class RevokedError(Exception):
    """The claim is gone (cancelled, taken over, timed out): this attempt may do nothing more."""


class BudgetRefusedError(Exception):
    """A budget does not allow the call; its task was paused, or the step is to fail."""

    def __init__(self, code: str, message: str, *, must_fail: bool) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.must_fail = must_fail


class Journal(Protocol):
    """How an attempt gets things recorded; the worker's implementation rides its turns."""

    async def intend(self, claimed: AttemptInput, intent: Intent) -> None:
        """Return once the intent is durable; raise `RevokedError` if the claim is gone.

        Raise `BudgetRefusedError` if what it reserves is more than a budget has left.
        """

    async def keep(self, claimed: AttemptInput, text: str) -> str | None:
        """Store a large request ahead of its intent; return why that cannot be done at the moment."""

    def resolve(self, claimed: AttemptInput, result: CallResult) -> None:
        """Queue a call's result; it is recorded before or with the attempt's outcome."""

    async def checkpoint(self, claimed: AttemptInput, value: Json) -> None:
        """Return once the step's checkpoint is durable; raise `RevokedError` if the claim is gone."""

    def log(self, claimed: AttemptInput, stream: str, text: str) -> None:
        """Queue a piece of the step's log; never waits."""
