"""The state machines of tasks, steps, calls, approvals, triggers, firings and work, as data.

The guard that every change passes (`check`), the CHECK constraints of the tables, the pictures in
the documentation and the exhaustive test of state × event all derive from these tables.
"""

from enum import StrEnum
from typing import Final, NamedTuple


class TaskStatus(StrEnum):
    """The status of a task."""

    PENDING = "pending"
    RUNNING = "running"
    PAUSED = "paused"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELED = "canceled"


class StepStatus(StrEnum):
    """The status of a step."""

    PENDING = "pending"
    RUNNING = "running"
    WAITING = "waiting"
    PAUSED = "paused"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    SKIPPED = "skipped"


class CallStatus(StrEnum):
    """The verdict on one call, in the ledger."""

    UNKNOWN = "unknown"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


class ApprovalStatus(StrEnum):
    """The status of a question to a person."""

    PENDING = "pending"
    APPROVED = "approved"
    DENIED = "denied"
    ANSWERED = "answered"
    EXPIRED = "expired"
    WITHDRAWN = "withdrawn"


class TriggerStatus(StrEnum):
    """The status of a schedule or a watcher."""

    ACTIVE = "active"
    PAUSED = "paused"
    BROKEN = "broken"
    """This program cannot read its definition."""
    REMOVED = "removed"


class FiringStatus(StrEnum):
    """What became of an instant of a schedule or an item of a watcher."""

    STARTED = "started"
    LATE = "late"
    """Started, and later than it should have been."""
    QUEUED = "queued"
    SKIPPED = "skipped"
    MISSED = "missed"
    BASELINE = "baseline"
    """There before the watcher was."""


class WorkStatus(StrEnum):
    """The status of the work that a step offers to external workers."""

    QUEUED = "queued"
    LEASED = "leased"
    """A worker has claimed it, and has not begun."""
    RUNNING = "running"
    ASKED = "asked"
    """The worker has returned it with a question to a person."""
    COMPLETED = "completed"
    FAILED = "failed"
    EXPIRED = "expired"
    """Its lease ended without a result."""
    WITHDRAWN = "withdrawn"
    """Its step no longer wants it."""


class Move(NamedTuple):
    """One row of a machine: the states in which an event is allowed, and the state after it."""

    sources: frozenset[str]
    target: str


def _move(sources: str, target: str) -> Move:
    return Move(frozenset(sources.split()), target)


Machine = dict[str, Move]

TASK: Final[Machine] = {
    "task.started": _move("pending", "running"),
    "task.paused": _move("running", "paused"),
    "task.resumed": _move("paused", "running"),
    "task.succeeded": _move("running", "succeeded"),
    "task.failed": _move("running", "failed"),
    "task.canceled": _move("pending running paused", "canceled"),
}

STEP: Final[Machine] = {
    "step.claimed": _move("pending", "running"),
    # A group of parallel items waits while they run, and ends from there.
    "step.succeeded": _move("running waiting", "succeeded"),
    "step.failed": _move("running waiting pending", "failed"),
    # An attempt of an external worker ends while its step waits for it.
    "step.retried": _move("running waiting", "pending"),
    "step.lost": _move("running", "pending"),
    "step.returned": _move("running", "pending"),
    "step.waiting": _move("running", "waiting"),
    "step.woken": _move("waiting", "pending"),
    "step.paused": _move("running", "paused"),
    "step.resumed": _move("paused", "pending"),
    "step.skipped": _move("running pending waiting paused", "skipped"),
}

CALL: Final[Machine] = {
    "tool_call.succeeded": _move("unknown", "succeeded"),
    "tool_call.failed": _move("unknown", "failed"),
    "tool_call.resolved": _move("unknown", "succeeded"),
}

# The first three are recorded as the event `approval.decided`, with the status.
APPROVAL: Final[Machine] = {
    "approval.approved": _move("pending", "approved"),
    "approval.denied": _move("pending", "denied"),
    "approval.answered": _move("pending", "answered"),
    "approval.expired": _move("pending", "expired"),
    "approval.withdrawn": _move("pending", "withdrawn"),
}

TRIGGER: Final[Machine] = {
    "trigger.paused": _move("active", "paused"),
    "trigger.resumed": _move("paused", "active"),
    "trigger.broken": _move("active", "broken"),
    "trigger.repaired": _move("broken", "active"),
    "trigger.removed": _move("active paused broken", "removed"),
    # A trigger that was paused when it was removed is paused when it comes back.
    "trigger.restored": _move("removed", "active"),
    "trigger.restored_paused": _move("removed", "paused"),
}

FIRING: Final[Machine] = {
    "firing.started": _move("queued", "started"),
    "firing.started_late": _move("queued", "late"),
    "firing.skipped": _move("queued", "skipped"),
}

WORK: Final[Machine] = {
    "work.leased": _move("queued", "leased"),
    "work.started": _move("leased", "running"),
    "work.released": _move("leased running", "queued"),
    "work.asked": _move("leased running", "asked"),
    "work.answered": _move("asked", "queued"),
    # A result may be the first that is heard of work that was leased.
    "work.completed": _move("leased running", "completed"),
    "work.failed": _move("leased running", "failed"),
    "work.expired": _move("leased running", "expired"),
    "work.withdrawn": _move("queued leased running asked", "withdrawn"),
}

FIRING_STARTED: Final = frozenset({FiringStatus.STARTED, FiringStatus.LATE})
TASK_ENDED: Final = frozenset({TaskStatus.SUCCEEDED, TaskStatus.FAILED, TaskStatus.CANCELED})
STEP_ENDED: Final = frozenset({StepStatus.SUCCEEDED, StepStatus.FAILED, StepStatus.SKIPPED})
WORK_LEASED: Final = (WorkStatus.LEASED, WorkStatus.RUNNING)
"""In these, and in no other, work has a lease."""
WORK_OPEN: Final = (WorkStatus.QUEUED, *WORK_LEASED, WorkStatus.ASKED)
"""In these a step waits on it."""


def shown_step_status(status: str, task_status: str) -> str:
    """Return a step's status for people: a cancel leaves the steps that had not ended as they are."""
    return "canceled" if task_status in TASK_ENDED and status not in STEP_ENDED else status


class ForbiddenMoveError(Exception):
    """An event is not allowed in the current state: a defect, never a user's mistake."""

    def __init__(self, event: str, state: str) -> None:
        super().__init__(f"{event} cannot happen in state {state!r}")
        self.event = event
        self.state = state


def moved(machine: Machine, event: str, state: str) -> str:
    """Return the state that an event leads to, or refuse it."""
    move = machine[event]
    if state not in move.sources:
        raise ForbiddenMoveError(event, state)
    return move.target
