"""What a turn carries, and what it leaves to be done once it is committed."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from agent.steps.types.call_records import CallResult, Intent
from agent.steps.types.outcome import Json, Outcome
from agent.store.artifacts.artifact_rows import PackedContent
from agent.store.db.database import DeferredRows
from agent.tasks.rules import budgets, child_tasks
from agent.tasks.rules.creation import Submission
from agent.tasks.rules.settlement import Claim
from agent.tasks.state.locked_task import FamilyPause, LockedTask
from agent.tasks.state.rows import StepRow
from agent.workflows.graph import Graph


@dataclass(slots=True, eq=False)
class Completion:
    """A finished attempt."""

    claim: Claim
    graph: Graph
    outcome: Outcome
    tries: int = 0
    """How often its task was held by another transaction."""
    packed: PackedContent | None = None
    """Its large part, once that is stored outside the database."""


@dataclass(slots=True, eq=False)
class JournalEntry:
    """What a running attempt wants recorded: an intent, a checkpoint, or a call's result."""

    claim: Claim
    graph: Graph
    intent: Intent | None = None
    checkpoint: str | None = None
    result: CallResult | None = None
    refusal: budgets.Refusal | None = None
    """Why a budget does not allow the intent."""
    problem: str | None = None
    """Why the database does not take it, however often it is sent."""
    delay: dict[str, Json] | None = None
    """What the step waits for outside the database; empty when it waits no longer."""
    tries: int = 0
    """How often its task was held by another transaction."""
    packed: PackedContent | None = None
    """Its large part, once that is stored outside the database."""


@dataclass(slots=True)
class Batch:
    """What one turn carries."""

    settles: list[Completion] = field(default_factory=list)
    notes: list[JournalEntry] = field(default_factory=list)
    logs: list[Sequence[Any]] = field(default_factory=list)
    submissions: list[Submission] = field(default_factory=list)
    child_ends: list[child_tasks.ChildEnd] = field(default_factory=list)
    must_wait: bool = False
    """Whether to wait for the lock of the one task that this is about: it was carried for long."""

    def task_ids(self) -> set[str]:
        """Return the tasks that outcomes, notes and the ends of children are about."""
        claims = [part.claim for part in self.settles] + [part.claim for part in self.notes]
        return {claim.task_id for claim in claims} | {end.parent_task_id for end in self.child_ends}

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to write."""
        return not (self.settles or self.notes or self.logs or self.submissions or self.child_ends)


@dataclass(slots=True)
class TxResult:
    """What a turn did, to be acted on once it is committed."""

    claimed: list[tuple[LockedTask, StepRow]] = field(default_factory=list)
    created: dict[str, str] = field(default_factory=dict)
    """The task of each submission, by the id that the submission proposed."""
    settled: list[tuple[Completion, bool]] = field(default_factory=list)
    """Each applied outcome, and whether its claim still held."""
    noted: list[tuple[JournalEntry, bool]] = field(default_factory=list)
    carried_settles: list[Completion] = field(default_factory=list)
    carried_notes: list[JournalEntry] = field(default_factory=list)
    carried_ends: list[child_tasks.ChildEnd] = field(default_factory=list)
    stops: list[tuple[str, int]] = field(default_factory=list)
    """(step id, token) of attempts to stop."""
    ended: list[child_tasks.ChildEnd] = field(default_factory=list)
    orphans: list[str] = field(default_factory=list)
    """Children that nobody waits for any more."""
    pauses: list[FamilyPause] = field(default_factory=list)
    is_draining: bool = False
    is_alone: bool = False
    has_more: bool = False
    """Whether due work was left over that this worker may look at again at once."""
    has_locked: bool = False
    """Whether something was due but held by another transaction."""
    events: list[tuple[Any, ...]] = field(default_factory=list)
    locked_tasks: list[LockedTask] = field(default_factory=list)
    transaction: DeferredRows = field(default_factory=DeferredRows)
    """Its number in the database, once it is committed."""
    is_assumed: bool = False
    """Whether nothing was read: the database will say whether what was remembered holds."""
    soonest: DeferredRows | None = None
    """When the next task is due, if that was asked for."""
    gone: set[str] = field(default_factory=set)
    """Tasks of the batch that were removed in the meantime: there is nothing to tell them."""
