"""A task with all its rows, as the checker reads it."""

import json
from dataclasses import dataclass, field, fields
from typing import Any, Final

from agent.core import waits
from agent.core.waits import Wait
from agent.store.db.database import Row


@dataclass(slots=True)
class TaskFacts:
    """A task's row, without its values."""

    id: str
    status: str
    workflow_name: str
    workflow_version: int
    next_wake_time: int | None
    deadline: int | None
    steps_open: int
    steps_running: int
    steps_failed: int
    steps_held: int
    places_taken: int
    phase: str
    event_seq: int
    is_continuation: bool
    """Whether it continues another task: a retry or a fork."""
    has_error: bool
    ended_at: int | None


@dataclass(slots=True)
class StepFacts:
    """A step's row, without its values; columns that equal steps of equal tasks share come first."""

    id: str
    task_id: str
    index: int
    parallel_index: int
    name: str
    kind: str
    status: str
    attempt: int
    max_attempts: int
    deps_remaining: int
    deps_failed: int
    wake_at: int | None
    held: int
    placed: int
    alone: int
    owner: str | None
    claim_token: int
    claim_turn: int | None
    skip_reason: str | None
    parallel_count: int | None
    items_done: int
    items_placed: int
    items_ended: int
    items_failed: int
    owner_turn: int | None
    """The number of its owner's last commit; null if there is no such worker."""
    waiting_on: str | None
    idempotency_key: str | None
    process_id: int | None
    process_started: str | None
    ended_at: int | None

    @property
    def is_item(self) -> bool:
        """Whether this is one of a group's items."""
        return self.parallel_index >= 0

    @property
    def is_group(self) -> bool:
        """Whether this is a group whose item count is known."""
        return self.parallel_index < 0 and self.parallel_count is not None

    @property
    def title(self) -> str:
        """Its name as people write it: an item has its number."""
        return f"{self.name}[{self.parallel_index}]" if self.is_item else self.name

    @property
    def wait(self) -> Wait | None:
        """Its present or last wait."""
        return waits.parse(self.waiting_on)


STEP_COLUMNS: Final = {field.name: place for place, field in enumerate(fields(StepFacts))}
"""The position of each field in a row of steps."""
_KEY: Final = STEP_COLUMNS["idempotency_key"]
_PROCESS: Final = STEP_COLUMNS["process_id"]


@dataclass(slots=True)
class EventFacts:
    """One event of a task."""

    task_id: str
    seq: int
    type: str
    step_id: str | None
    attempt: int | None
    data: str | None

    def document(self) -> dict[str, Any]:
        """Return the event's data."""
        data: dict[str, Any] = json.loads(self.data) if self.data else {}
        return data


@dataclass(slots=True)
class CallFacts:
    """One call with its verdict; the verdict's columns are null if it has none."""

    task_id: str
    id: str
    step_id: str
    number: int
    attempt: int
    action: str
    idempotency_key: str
    request_hash: str
    remote_key: str
    on_unknown: str
    model: str | None
    tokens_used: int | None
    """Null while the use of a call of a model is unknown."""
    microusd_used: int | None
    tokens_reserved: int | None
    microusd_reserved: int | None
    status: str | None
    resolved_at: int | None
    error: str | None = None

    @property
    def is_final(self) -> bool:
        """Whether its failure is final."""
        is_failed = self.status == "failed" and self.error is not None
        return is_failed and json.loads(self.error or "{}").get("final") is True


@dataclass(frozen=True, slots=True)
class ApprovalFacts:
    """One question to a person, and whether it was decided."""

    task_id: str
    id: str
    step_id: str
    kind: str
    status: str
    request: str
    request_hash: str
    approved_hash: str | None
    edits: str | None
    renews: str | None
    who: str | None
    decided_by: str | None
    decided_channel: str | None
    decided_at: int | None


@dataclass(frozen=True, slots=True)
class BudgetFacts:
    """The budget of a task or a step: limits, used and reserved amounts."""

    task_id: str
    id: str
    tokens_limit: int | None
    microusd_limit: int | None
    tokens_used: int
    microusd_used: int
    tokens_reserved: int
    microusd_reserved: int

    @property
    def step_index(self) -> int | None:
        """The index of the step; None for the task's own budget."""
        _, slash, index = self.id.partition("/")
        return int(index) if slash else None


@dataclass(slots=True)
class AuditRows:
    """One task with all that belongs to it."""

    task: TaskFacts
    read_at: int
    """When all of it was read, by the database's clock."""
    step_rows: list[Row] = field(default_factory=list)
    """The fields of `StepFacts` in order, for code that needs no names."""
    event_rows: list[Row] = field(default_factory=list)
    """The fields of `EventFacts`."""
    calls: list[CallFacts] = field(default_factory=list)
    approvals: list[ApprovalFacts] = field(default_factory=list)
    budgets: list[BudgetFacts] = field(default_factory=list)
    children: set[str] = field(default_factory=set)
    """Tasks that its steps have started."""
    _steps: list[StepFacts] | None = None
    _events: list[EventFacts] | None = None

    @property
    def steps(self) -> list[StepFacts]:
        """Its steps in the order of their indexes."""
        if self._steps is None:
            self._steps = [StepFacts(*row) for row in self.step_rows]
        return self._steps

    @property
    def is_plain(self) -> bool:
        """Whether nothing but its steps and their events belongs to it."""
        return not (self.calls or self.approvals or self.budgets) and all(
            row[_KEY] is None and row[_PROCESS] is None for row in self.step_rows
        )

    @property
    def events(self) -> list[EventFacts]:
        """Its events in their order."""
        if self._events is None:
            self._events = [EventFacts(*row) for row in self.event_rows]
        return self._events
