"""Claims of external workers: which queued work each gets.

Candidates are read without locks; their tasks are locked without waiting (by the caller), and only what
is still queued under the lock is leased. So work that another process takes at the same moment is left
out, and never leased twice.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from agent.core.state_machine import WORK_LEASED, StepStatus, TaskStatus, WorkStatus
from agent.core.waits import Work
from agent.store.db.database import Connection
from agent.store.engine import snapshot_rows, work_rows
from agent.store.engine.work_rows import WorkRow
from agent.tasks.rules import work_leases
from agent.tasks.rules.work_parts import ClaimResult, LeasedWork, WorkClaim
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


def find_candidates(tx: Connection, claims: Sequence[WorkClaim]) -> Candidates:
    """Read what claims may get, without locks."""
    repeated: dict[WorkClaim, list[Candidate]] = {}
    spent: set[WorkClaim] = set()
    tokens = [claim.client_token for claim in claims if claim.client_token is not None]
    rows = work_rows.by_client_token(tx, tokens) if tokens else []
    known = [(token, status, Candidate(*columns)) for token, status, *columns in rows]
    for claim in claims:
        for token, status, candidate in known:
            if token != claim.client_token or candidate.queue not in claim.queues:
                continue
            if status in WORK_LEASED:
                repeated.setdefault(claim, []).append(candidate)
            else:
                spent.add(claim)
    fresh = [claim for claim in claims if claim not in repeated and claim not in spent]
    queued: list[Candidate] = []
    if fresh:
        queues = {queue for claim in fresh for queue in claim.queues}
        most = sum(claim.limit for claim in fresh) + MORE_CANDIDATES
        queued = [Candidate(*row) for row in work_rows.candidates(tx, queues, most)]
        queued.sort(key=lambda one: (one.priority, one.work_id))
    return Candidates(queued, repeated, spent)


def grant(
    tx: Connection,
    tasks: dict[str, LockedTask],
    claims: Iterable[WorkClaim],
    candidates: Candidates,
) -> list[tuple[WorkClaim, ClaimResult]]:
    """Lease candidates to claims, in the order of both; the tasks in memory are locked."""
    left = list(candidates.queued)
    got: list[tuple[WorkClaim, list[tuple[LockedTask, StepRow, WorkRow]]]] = []
    for claim in claims:
        repeated = [_held(tasks, claim, one) for one in candidates.repeated.get(claim, ())]
        mine = [found for found in repeated if found is not None]
        if claim not in candidates.repeated and claim not in candidates.spent:
            mine = _lease_first(tasks, claim, left)
        got.append((claim, mine))
    describe = _describer(tx, [found for _, some in got for found in some])
    return [(claim, ClaimResult([describe(*found) for found in some])) for claim, some in got]


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


def _describer(
    tx: Connection, found: list[tuple[LockedTask, StepRow, WorkRow]]
) -> Callable[[LockedTask, StepRow, WorkRow], LeasedWork]:
    """Return a function that adds to a row what a worker needs to know."""
    checkpoints = work_rows.checkpoints(tx, [step.id for _, step, _ in found]) if found else {}
    snapshots = snapshot_rows.newest(tx, [row.task_id for _, _, row in found]) if found else {}

    def describe(locked: LockedTask, step: StepRow, row: WorkRow) -> LeasedWork:
        definition = locked.definition(step)
        intent = work_leases.intent_of(row)
        return LeasedWork(
            work_leases.copied(row),
            locked.task.workflow_name,
            definition.name,
            step.max_attempts,
            definition.output_schema,
            None if intent is None else intent["remote_key"],
            checkpoints.get(step.id),
            snapshots.get(row.task_id),
        )

    return describe
