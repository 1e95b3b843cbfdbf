"""The content of one transaction of a worker, and its result once it is committed."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from agent.core.state_names import StateKey
from agent.steps.types.attempt_input import AttemptInput
from agent.steps.types.call_records import CallResult, Intent
from agent.steps.types.outcome import Json, Outcome
from agent.steps.types.snapshot import SnapshotOperation
from agent.steps.types.state_values import StateOperation, StateValue
from agent.store.artifacts.artifact_rows import PackedContent
from agent.store.db.database import DeferredRows
from agent.tasks.rules import child_tasks
from agent.tasks.rules.budget_reservations import Refusal
from agent.tasks.rules.creation import Submission
from agent.tasks.rules.external_work.work_parts import LeaseCall, WorkPart, WorkResult
from agent.tasks.rules.firings.trigger_update import FireResult, TriggerUpdate
from agent.tasks.rules.settlement import Claim
from agent.tasks.rules.state_writes import change_of
from agent.tasks.state.locked_task import FamilyPause, LockedTask
from agent.tasks.state.rows import StepRow
from agent.workflows.graph import Graph


@dataclass(slots=True, eq=False)
class Completion:
    """A finished attempt."""

    claim: Claim
    graph: Graph
    outcome: Outcome
    is_early: bool = False
    """Whether a thread of the attempt runs on, and its late completion follows."""
    tries: int = 0
    """How often its task was locked by another transaction."""
    packed: PackedContent | None = None
    """Its large value, once that is stored outside the database."""


@dataclass(slots=True, eq=False)
class JournalEntry:
    """A record of a running attempt: an intent, a checkpoint, or the result of a call."""

    claim: Claim
    graph: Graph
    intent: Intent | None = None
    checkpoint: str | None = None
    result: CallResult | None = None
    state: StateOperation | None = None
    """An operation of the step's code on `state`; its intent and its result are recorded with it."""
    snapshot: SnapshotOperation | None = None
    """A value that the step's code appends to the context of its task; recorded in the same way."""
    refusal: Refusal | None = None
    """Why a budget does not allow the intent."""
    problem: str | None = None
    """Why the database refuses it, however often it is sent."""
    delay: dict[str, Json] | None = None
    """The value outside the database that the step waits for; empty when it waits no longer."""
    alone: int | None = None
    """The step's isolation from now on (`state.isolation`), where that changes."""
    tries: int = 0
    """How often its task was locked by another transaction."""
    packed: PackedContent | None = None
    """Its large value, once that is stored outside the database."""


@dataclass(slots=True)
class Batch:
    """The content of one transaction."""

    completions: list[Completion] = field(default_factory=list)
    entries: list[JournalEntry] = field(default_factory=list)
    logs: list[Sequence[Any]] = field(default_factory=list)
    submissions: list[Submission] = field(default_factory=list)
    child_ends: list[child_tasks.ChildEnd] = field(default_factory=list)
    trigger_updates: list[TriggerUpdate] = field(default_factory=list)
    work: list[WorkPart] = field(default_factory=list)
    """Calls of external workers."""
    must_wait: bool = False
    """Whether to wait for the lock of its one task, which other transactions held too often."""

    def task_ids(self) -> set[str]:
        """Return the tasks that this changes, those to be created left out."""
        parts: list[Completion | JournalEntry] = [*self.completions, *self.entries]
        task_ids = {part.claim.task_id for part in parts}
        for end in self.child_ends:
            task_ids.add(end.parent_task_id)
        for call in self.work:
            if isinstance(call, LeaseCall):
                task_ids.add(call.address.task_id)
        return task_ids

    def state_keys(self) -> set[StateKey]:
        """Return the values of `state` that this reads or writes; most batches have none."""
        keys: set[StateKey] = set()
        for completion in self.completions:
            change = change_of(completion.outcome)
            if change is not None:
                keys |= change.keys
        for entry in self.entries:
            if entry.state is not None:
                keys.add(entry.state.key)
        return keys

    @property
    def must_read(self) -> bool:
        """Whether it has parts that are applied to rows which are read under their locks."""
        return bool(self.trigger_updates or self.work)

    def copy(self) -> "Batch":
        """Return a batch with the same parts, in lists of its own."""
        return replace(
            self,
            completions=list(self.completions),
            entries=list(self.entries),
            submissions=list(self.submissions),
            child_ends=list(self.child_ends),
            trigger_updates=list(self.trigger_updates),
            work=list(self.work),
        )

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to write."""
        return not (
            self.completions
            or self.entries
            or self.logs
            or self.submissions
            or self.child_ends
            or self.trigger_updates
            or self.work
        )


@dataclass(slots=True)
class TxResult:
    """The result of a transaction; the worker acts on it once it is committed."""

    claimed: list[tuple[LockedTask, StepRow]] = field(default_factory=list)
    created: dict[str, str] = field(default_factory=dict)
    """The task of each submission, by the id that the submission proposed."""
    settled: list[tuple[Completion, bool]] = field(default_factory=list)
    """Each applied completion, and whether its claim still held."""
    journaled: list[tuple[JournalEntry, bool]] = field(default_factory=list)
    """Each journal entry, and whether it was recorded."""
    conflicts: list[Completion] = field(default_factory=list)
    """Completions whose `set_state` is to be rendered again, from `state`; nothing else is repeated."""
    state: dict[StateKey, StateValue] = field(default_factory=dict)
    """Values of `state` as the transaction left them."""
    carried_completions: list[Completion] = field(default_factory=list)
    carried_entries: list[JournalEntry] = field(default_factory=list)
    carried_ends: list[child_tasks.ChildEnd] = field(default_factory=list)
    fired: list[tuple[TriggerUpdate, FireResult]] = field(default_factory=list)
    """Each plan for a trigger, with its result."""
    carried_updates: list[TriggerUpdate] = field(default_factory=list)
    worked: list[tuple[WorkPart, WorkResult]] = field(default_factory=list)
    """Each call of an external worker, with its result."""
    carried_work: list[WorkPart] = field(default_factory=list)
    queued: list[str] = field(default_factory=list)
    """The queues that got work for external workers, once for each."""
    stops: list[tuple[str, int]] = field(default_factory=list)
    """(step id, token) of attempts to stop."""
    ended: list[child_tasks.ChildEnd] = field(default_factory=list)
    ended_triggers: list[str] = field(default_factory=list)
    """The triggers whose tasks ended: a queued run may start."""
    orphans: list[str] = field(default_factory=list)
    """Child tasks whose parent step no longer waits for them."""
    pauses: list[FamilyPause] = field(default_factory=list)
    is_draining: bool = False
    is_isolated: bool = False
    has_more: bool = False
    """Whether due work is left that this worker may claim at once."""
    has_locked: bool = False
    """Whether a due task was locked by another transaction."""
    events: list[tuple[Any, ...]] = field(default_factory=list)
    locked_tasks: list[LockedTask] = field(default_factory=list)
    transaction: DeferredRows = field(default_factory=DeferredRows)
    """Its id in the database, once it is committed."""
    is_assumed: bool = False
    """Whether it read nothing: the database checks the cached rows that it relies on."""
    cache_generation: int = 0
    """Of the task cache when it began."""
    soonest: DeferredRows | None = None
    """When the next task is due, if that was queried."""
    gone: set[str] = field(default_factory=set)
    """Tasks of the batch that no longer exist."""

    def merge(self, part: "TxResult") -> None:
        """Merge the result of another transaction for the same batch."""
        self.created.update(part.created)
        self.is_isolated = self.is_isolated or part.is_isolated
        self.is_draining = self.is_draining or part.is_draining
        self.claimed += part.claimed
        self.settled += part.settled
        self.journaled += part.journaled
        self.conflicts += part.conflicts
        self.state.update(part.state)
        self.carried_completions += part.carried_completions
        self.carried_entries += part.carried_entries
        self.carried_ends += part.carried_ends
        self.fired += part.fired
        self.carried_updates += part.carried_updates
        self.worked += part.worked
        self.carried_work += part.carried_work
        self.queued += part.queued
        self.ended_triggers += part.ended_triggers
        self.stops += part.stops
        self.ended += part.ended
        self.orphans += part.orphans
        self.pauses += part.pauses
        self.events += part.events
        self.locked_tasks += part.locked_tasks


@dataclass(slots=True)
class CommitResult:
    """A committed transaction and the attempts to start."""

    result: TxResult
    attempts: list[AttemptInput] = field(default_factory=list)
    is_isolated: bool = False
    """Whether those attempts run with nothing beside them."""
    refused: dict[str, str] = field(default_factory=dict)
    """Submissions that cannot be created, by their proposed ids, and why."""
    rest: Batch | None = None
    """The parts still to be sent: the database failed while the batch was committed in parts."""
