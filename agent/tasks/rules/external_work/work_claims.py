"""Claims of external workers: which queued work each gets.

Candidates are read without locks; their tasks are locked without waiting (by the caller), and only what
is still queued under the lock is leased. So work that another process takes at the same moment is left
out, and never leased twice.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from agent.core.state_machine import WORK_LEASED, StepStatus, TaskStatus, WorkStatus
from agent.core.waits import Work
from agent.store.engine.reads import Rows
from agent.store.engine.work_rows import WorkRow
from agent.tasks.rules.external_work import work_leases
from agent.tasks.rules.external_work.work_parts import ClaimResult, LeasedWork, WorkClaim
from agent.tasks.state.locked_task import LockedTask
from agent.tasks.state.rows import StepRow

MORE_CANDIDATES = 8
"""Read beyond what is wanted: another process may hold the first ones."""


class Candidate(NamedTuple):
    """Work that may be claimed, or that a client token has claimed already."""

    work_id: str
    task_id: str
    step_index: int
    parallel_index: int
    queue: str
    priority: int


class WorkContext(NamedTuple):
    """What a worker needs to know of its work besides the row."""

    checkpoint: str | None
    snapshot: str | None
    """The id of the newest snapshot of its task."""


class Candidates(NamedTuple):
    """What the claims of one batch may get."""

    queued: list[Candidate]
    repeated: dict[WorkClaim, list[Candidate]]
    """What the token of a claim holds already."""
    spent: set[WorkClaim]
    """Claims whose token got work that has ended: such a repetition gets nothing."""

    @property
    def all(self) -> list[Candidate]:
        """Every candidate."""
        return [*self.queued, *(one for some in self.repeated.values() for one in some)]


def most_candidates(claims: Sequence[WorkClaim]) -> int:
    """Return how much work of each queue to read for claims."""
    return sum(claim.limit for claim in claims) + MORE_CANDIDATES


def find_candidates(claims: Sequence[WorkClaim], claimed: Rows, queued: Rows) -> Candidates:
    """Return the work that claims may get.

    `claimed` is the work that their tokens have already got, `queued` the first work of their queues; both were
    read without locks.
    """
    repeated: dict[WorkClaim, list[Candidate]] = {}
    spent: set[WorkClaim] = set()
    known = [(token, status, Candidate(*columns)) for token, status, *columns in claimed]
    for claim in claims:
        for token, status, candidate in known:
            if token != claim.client_token or candidate.queue not in claim.queues:
                continue
            if status in WORK_LEASED:
                repeated.setdefault(claim, []).append(candidate)
            else:
                spent.add(claim)
    is_any_fresh = any(claim not in repeated and claim not in spent for claim in claims)
    unclaimed = [Candidate(*row) for row in queued] if is_any_fresh else []
    unclaimed.sort(key=lambda one: (one.priority, one.work_id))
    return Candidates(unclaimed, repeated, spent)


def grant(
    tasks: dict[str, LockedTask],
    claims: Iterable[WorkClaim],
    candidates: Candidates,
    context: Mapping[str, WorkContext],
) -> list[tuple[WorkClaim, ClaimResult]]:
    """Lease candidates to claims, in the order of both; the tasks in memory are locked.

    `context` has further facts for workers besides the rows, by the id of the work.
    """
    left = list(candidates.queued)
    granted: list[tuple[WorkClaim, list[tuple[LockedTask, StepRow, WorkRow]]]] = []
    for claim in claims:
        repeated = [_held(tasks, claim, one) for one in candidates.repeated.get(claim, ())]
        mine = [found for found in repeated if found is not None]
        if claim not in candidates.repeated and claim not in candidates.spent:
            mine = _lease_first(tasks, claim, left)
        granted.append((claim, mine))
    return [
        (claim, ClaimResult([_describe(*found, context[found[2].id]) for found in some]))
        for claim, some in granted
    ]


def _lease_first(
    tasks: dict[str, LockedTask], claim: WorkClaim, left: list[Candidate]
) -> list[tuple[LockedTask, StepRow, WorkRow]]:
    mine: list[tuple[LockedTask, StepRow, WorkRow]] = []
    for candidate in list(left):
        if len(mine) >= claim.limit:
            break
        if candidate.queue not in claim.queues:
            continue
        left.remove(candidate)
        found = _queued(tasks, candidate)
        if found is None:
            continue
        locked, step, row = found
        worker, token = claim.worker, claim.client_token
        work_leases.lease(locked, step, row, worker, token, claim.lease_us)
        if claim.must_start:
            work_leases.start(locked, step, row)
        mine.append(found)
    return mine


def _find(
    tasks: dict[str, LockedTask], candidate: Candidate
) -> tuple[LockedTask, StepRow, WorkRow] | None:
    locked = tasks.get(candidate.task_id)
    if locked is None:
        return None
    step = locked.steps.get((candidate.step_index, candidate.parallel_index))
    row = locked.work.get(candidate.work_id)
    if step is None or row is None or step.status != StepStatus.WAITING:
        return None
    on = step.wait
    return (locked, step, row) if isinstance(on, Work) and on.work_id == row.id else None


def _queued(
    tasks: dict[str, LockedTask], candidate: Candidate
) -> tuple[LockedTask, StepRow, WorkRow] | None:
    found = _find(tasks, candidate)
    if found is None or found[2].status != WorkStatus.QUEUED:
        return None
    return found if found[0].task.status == TaskStatus.RUNNING else None


def _held(
    tasks: dict[str, LockedTask], claim: WorkClaim, candidate: Candidate
) -> tuple[LockedTask, StepRow, WorkRow] | None:
    found = _find(tasks, candidate)
    if found is None or found[2].status not in WORK_LEASED:
        return None
    return found if found[2].client_token == claim.client_token else None


def _describe(locked: LockedTask, step: StepRow, row: WorkRow, context: WorkContext) -> LeasedWork:
    """Add to a row the further facts for its worker."""
    definition = locked.definition(step)
    intent = work_leases.intent_of(row)
    return LeasedWork(
        work_leases.copied(row),
        locked.task.workflow_name,
        definition.name,
        step.max_attempts,
        definition.output_schema,
        None if intent is None else intent["remote_key"],
        context.checkpoint,
        context.snapshot,
    )
