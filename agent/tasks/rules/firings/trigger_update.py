"""Plans for triggers: the fates of due instants and new items, and the result of a plan.

A plan is made outside of any transaction, from a trigger at one version; `firing` applies it.

The **fate** of an instant or an item is its recorded `FiringStatus`: whether a task was started or queued for
it, or why not. Each gets exactly one.
"""

from dataclasses import dataclass, field
from typing import Any, Literal

from agent.core.state_machine import FiringStatus
from agent.steps.types.outcome import Json
from agent.tasks.rules.creation import Submission
from agent.tasks.state.locked_task import LockedTask

FireStatus = Literal["applied", "stale", "gone"]


@dataclass(frozen=True, slots=True)
class Run:
    """One task to start, for one instant or for one or more items."""

    keys: tuple[tuple[str, int | None], ...]
    """The key and the nominal instant of each firing that it stands for."""
    due_at: int
    input: dict[str, Json]
    context: dict[str, Json]
    """The task's `trigger`."""
    workflow_version: int
    is_late: bool = False
    ignores_overlap: bool = False
    """Whether it starts even if other tasks of its trigger are open: a person asked for it."""
    is_queued: bool = False
    """Whether it goes through the queue even if it is due: overlap delays it, and never skips it."""
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Mark:
    """The fate of an instant or an item that starts no task; or of a range of instants."""

    key: str
    status: FiringStatus
    reason: str | None = None
    nominal_at: int | None = None
    until_at: int | None = None
    count: int | None = None
    run_id: str | None = None
    """The request that made it, if it could come twice."""


@dataclass(slots=True, eq=False)
class TriggerUpdate:
    """The fates of a trigger's due instants or new items.

    Without a version it adds nothing: it only starts queued runs that may start now.
    """

    trigger_id: str
    version: int | None = None
    runs: list[Run] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    values: dict[str, Any] = field(default_factory=dict)
    """New values of the trigger's columns."""
    drop_queued: str | None = None
    """Why queued runs are skipped, if they are."""
    seen: list[str] = field(default_factory=list)
    """Keys of known items that a poll showed again."""
    seen_since: int | None = None
    """Items that were seen since then are still shown: the source has not changed."""
    events: list[tuple[str, dict[str, Json]]] = field(default_factory=list)
    submissions: list[Submission] = field(default_factory=list)
    """Other tasks to create with it: the question about missed runs."""

    def skip_runs(self, reason: str) -> None:
        """Start nothing: every run is skipped, and queued ones too."""
        self.marks += [
            Mark(key, FiringStatus.SKIPPED, reason, nominal_at)
            for run in self.runs
            for key, nominal_at in run.keys
        ]
        self.runs = []
        self.drop_queued = self.drop_queued or reason


@dataclass(slots=True)
class FireResult:
    """The result of a plan."""

    status: FireStatus
    started: dict[str, str] = field(default_factory=dict)
    """Keys of firings, and the tasks that they started."""
    fates: dict[str, FiringStatus] = field(default_factory=dict)
    superseded: list[str] = field(default_factory=list)
    """Open tasks to cancel, so that a queued run can start."""


@dataclass(slots=True)
class FireResults:
    """The results of several plans in one transaction."""

    tasks: list[LockedTask] = field(default_factory=list)
    done: list[tuple[TriggerUpdate, FireResult]] = field(default_factory=list)
    carried: list[TriggerUpdate] = field(default_factory=list)
    """Plans whose trigger another transaction holds, or another plan of this one."""
    events: list[tuple[Any, ...]] = field(default_factory=list)
