"""Chooses what to run next: by priority, fairly among tasks, isolating a step whose process died.

Candidates are the steps that this transaction released and those that the index says are due. Tasks
of one priority are served round robin, one step each, so that a wide task does not hold every slot. A task that
has waited long counts as one of a higher priority, so that the low ones are never starved.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby, islice
from operator import itemgetter
from typing import Final, NamedTuple

from agent.core.clock import SECOND
from agent.core.state_machine import StepStatus, TaskStatus
from agent.tasks.state import transitions
from agent.tasks.state.locked_task import LockedTask
from agent.tasks.state.rows import StepRow

AGING_US = 5 * SECOND
"""A task's priority rises by one each time it has waited this long."""

CHECK_US = 15 * SECOND
"""Running steps are checked at multiples of this, so that a task's wake time seldom changes."""


_Queue = tuple[int, int, LockedTask, list[StepRow]]
"""A task's rank, since when it waits, and its due steps."""
_RANK: Final = itemgetter(0)
_RANK_AND_SINCE: Final = itemgetter(0, 1)


class AnsweredTime(NamedTuple):
    """A time in which external workers were answered without interruption, by an even clock."""

    since: int
    until: int


@dataclass(frozen=True, slots=True)
class ClaimCapacity:
    """How much a worker may claim in one transaction."""

    slots: int
    """Free slots."""
    running: int
    """Attempts in flight, without those that this transaction settles."""
    lease_us: int
    worker_id: str = ""
    """Filled in by the committer, like `tx_number`."""
    tx_number: int = 0
    may_isolate: bool = True
    """False when a step that must be isolated may run beside others after all."""
    max_depth: int = 8
    """How deep tasks may be nested."""
    most_due: int = 0
    """How many due tasks to visit, also without a free slot: timers fire and deadlines pass."""
    must_query_due: bool = False
    """Whether to query what is due even where nothing should be: it is the safety net."""
    passed_over: frozenset[str] = frozenset()
    """Due tasks that are left out."""
    answering: AnsweredTime | None = None
    """In what time this process has answered external workers; None: it answers none."""
    only_due: str | None = None
    """The one due task to visit, where each is visited in a transaction of its own."""


@dataclass(frozen=True, slots=True)
class Claims:
    """What was claimed, and whether a step waits to be isolated."""

    steps: list[tuple[LockedTask, StepRow]]
    is_draining: bool
    """True when nothing more was claimed because a step must be isolated."""
    is_isolated: bool
    """True when the one claimed step runs isolated."""
    left_over: int
    """Due steps that found no slot."""


def check_at(now: int, lease_us: int) -> int:
    """Return when to check on a step that is claimed now: after a lease, rounded up."""
    return -(-(now + lease_us) // CHECK_US) * CHECK_US


def claim(locked_tasks: Iterable[LockedTask], capacity: ClaimCapacity) -> Claims:
    """Claim as many due steps as there are slots."""
    queues: list[_Queue] = []
    due = 0
    isolated: tuple[LockedTask, StepRow] | None = None
    for locked in locked_tasks:
        if locked.task.status != TaskStatus.RUNNING:
            continue
        steps = _claimable(locked)
        if not steps:
            continue
        due += len(steps)
        if isolated is None and capacity.may_isolate:
            for step in steps:
                if step.alone:
                    isolated = (locked, step)
                    break
        since = steps[0].wake_at or locked.now
        queues.append((_rank(locked, since), since, locked, steps))
    if isolated is not None:
        if capacity.running > 0 or capacity.slots < 1:
            return Claims([], is_draining=True, is_isolated=False, left_over=due)
        _claim(*isolated, capacity, is_isolated=True)
        return Claims([isolated], is_draining=False, is_isolated=True, left_over=due - 1)
    queues.sort(key=_RANK_AND_SINCE)
    claimed = list(islice(_round_robin(queues), capacity.slots))
    for locked, step in claimed:
        _claim(locked, step, capacity, is_isolated=False)
    return Claims(claimed, is_draining=False, is_isolated=False, left_over=due - len(claimed))


def _claimable(locked: LockedTask) -> list[StepRow]:
    """The steps in memory that may be claimed now, those longest due first."""
    now = locked.now
    steps = [
        step
        for step in locked.steps.values()
        if step.wake_at is not None and step.wake_at <= now and step.status == StepStatus.PENDING
    ]
    if len(steps) > 1:
        steps.sort(key=lambda step: (step.wake_at, step.index, step.parallel_index))
    return steps


def _rank(locked: LockedTask, since: int) -> int:
    return max(0, locked.task.priority - (locked.now - since) // AGING_US)


def _round_robin(queues: list[_Queue]) -> Iterable[tuple[LockedTask, StepRow]]:
    """One step of each task, round robin within each rank; the queues are in order."""
    for _, of_a_rank in groupby(queues, key=_RANK):
        tasks = [(locked, steps) for _, _, locked, steps in of_a_rank]
        place = 0
        while tasks:
            for locked, steps in tasks:
                yield locked, steps[place]
            place += 1
            tasks = [task for task in tasks if len(task[1]) > place]


def _claim(
    locked: LockedTask, step: StepRow, capacity: ClaimCapacity, *, is_isolated: bool
) -> None:
    at = check_at(locked.now, capacity.lease_us)
    worker_id, tx_number = capacity.worker_id, capacity.tx_number
    transitions.claim(locked, step, worker_id, tx_number, at, is_isolated=is_isolated)
