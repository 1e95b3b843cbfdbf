"""A batch that fails as a whole, committed part by part: a bad part costs only itself.

The parts of a batch with content are its entries, completions, submissions, ends, plans for triggers and calls of
external workers. An empty batch
fails because of a task that is due: there the parts are the due tasks.

If the database fails in the middle, the committed parts stand, and only the rest is sent again.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import structlog

from agent.core.clock import Clock
from agent.steps.types.outcome import Failed, StepError
from agent.store.db.database import Connection
from agent.store.engine import reads
from agent.tasks.commit.attempt_loader import AttemptLoader
from agent.tasks.commit.batch import Batch, CommitResult, Completion
from agent.tasks.rules.claiming import ClaimCapacity
from agent.tasks.rules.external_work.work_parts import (
    ClaimResult,
    LeaseCall,
    LeaseResult,
    WorkResult,
)
from agent.tasks.rules.firings.trigger_update import FireResult, TriggerUpdate

log = structlog.get_logger(__name__)

CommitPart = Callable[[Batch, ClaimCapacity, CommitResult], str | None]
"""Commits a part and merges its result; returns why the part is refused, None if it is not.

It raises errors that are no fault of the part."""

_SET_ASIDE_SECONDS: Final = 60.0
_MOST_PARTS: Final = 64


class SetAsideTasks:
    """Due tasks that cannot be read, each left out of commits for a while."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until: dict[str, float] = {}

    def add(self, task_id: str) -> None:
        """Leave a task out from now on."""
        self._until[task_id] = self._clock.monotonic() + _SET_ASIDE_SECONDS

    def current(self) -> frozenset[str]:
        """Return the tasks that are left out now."""
        now = self._clock.monotonic()
        self._until = {task: until for task, until in self._until.items() if until > now}
        return frozenset(self._until)

    def exclude_from(self, capacity: ClaimCapacity) -> ClaimCapacity:
        """Return a capacity that passes these tasks over."""
        if not self._until:
            return capacity
        return replace(capacity, passed_over=capacity.passed_over | self.current())


def commit_parts(
    batch: Batch,
    capacity: ClaimCapacity,
    commit: CommitPart,
    total: CommitResult,
    task_exists: Callable[[str], bool],
) -> None:
    """Commit each part of a batch by itself, without claims; `total.rest` keeps the others."""
    capacity = replace(capacity, slots=0, most_due=0)
    rest = total.rest = batch.copy()
    while rest.entries:
        entry = rest.entries[0]
        entry.problem = commit(Batch(entries=[entry]), capacity, total)
        if entry.problem is not None:
            # Its attempt waits for the answer.
            total.result.journaled.append((entry, False))
        del rest.entries[0]
    while rest.completions:
        completion = rest.completions[0]
        problem = commit(Batch(completions=[completion]), capacity, total)
        if problem is not None:
            _replace_outcome(completion, problem, capacity, commit, total)
        del rest.completions[0]
    _commit_submissions(rest, capacity, commit, total, task_exists)
    while rest.child_ends:
        commit(Batch(child_ends=[rest.child_ends[0]]), capacity, total)
        del rest.child_ends[0]
    _commit_updates(rest, capacity, commit, total)
    _commit_work(rest, capacity, commit, total)
    if rest.logs:
        commit(Batch(logs=rest.logs), capacity, total)
    total.rest = None
    total.result.has_more = True


def _commit_submissions(
    rest: Batch,
    capacity: ClaimCapacity,
    commit: CommitPart,
    total: CommitResult,
    task_exists: Callable[[str], bool],
) -> None:
    while rest.submissions:
        submission = rest.submissions[0]
        problem = commit(Batch(submissions=[submission]), capacity, total)
        if problem is not None:
            if task_exists(submission.task_id):
                # An earlier COMMIT, which was never confirmed, has created it.
                total.result.created[submission.task_id] = submission.task_id
            else:
                total.refused[submission.task_id] = problem
        del rest.submissions[0]


def _commit_updates(
    rest: Batch, capacity: ClaimCapacity, commit: CommitPart, total: CommitResult
) -> None:
    while rest.trigger_updates:
        update = rest.trigger_updates[0]
        problem = commit(Batch(trigger_updates=[update]), capacity, total)
        if problem is not None:
            _skip_runs(update, problem, capacity, commit, total)
        del rest.trigger_updates[0]


def _commit_work(
    rest: Batch, capacity: ClaimCapacity, commit: CommitPart, total: CommitResult
) -> None:
    while rest.work:
        part = rest.work[0]
        problem = commit(Batch(work=[part]), capacity, total)
        if problem is not None:
            refused: WorkResult = ClaimResult()
            if isinstance(part, LeaseCall):
                log.error("work.refused", verb=part.verb, error=problem)
                refused = LeaseResult(refusal=f"it cannot be recorded: {problem}")
            total.result.worked.append((part, refused))
        del rest.work[0]


def _replace_outcome(
    completion: Completion,
    problem: str,
    capacity: ClaimCapacity,
    commit: CommitPart,
    total: CommitResult,
) -> None:
    """Fail a step whose outcome cannot be stored; the ledger keeps the results of its calls."""
    reason = StepError("bad_outcome", "internal", f"its outcome could not be stored: {problem}")
    failed = Completion(completion.claim, completion.graph, Failed(reason))
    if commit(Batch(completions=[failed]), capacity, total) is not None:
        # Nothing can be written to its task. Free the slot at least.
        total.result.settled.append((completion, False))


def _skip_runs(
    update: TriggerUpdate,
    problem: str,
    capacity: ClaimCapacity,
    commit: CommitPart,
    total: CommitResult,
) -> None:
    """Record runs whose tasks cannot be created as skipped, with the reason."""
    log.error("trigger.refused", trigger=update.trigger_id, error=problem)
    update.skip_runs(f"its task could not be created: {problem}")
    if commit(Batch(trigger_updates=[update]), capacity, total) is not None:
        total.result.fired.append((update, FireResult("stale")))


def commit_due_tasks(
    connection: Connection,
    capacity: ClaimCapacity,
    commit: CommitPart,
    total: CommitResult,
    set_aside: SetAsideTasks,
    loader: AttemptLoader,
    now: int,
) -> None:
    """Claim from each due task by itself; set a task aside whose rows cannot be read."""
    commit(Batch(), replace(capacity, slots=0, most_due=0), total)
    most, aside = min(capacity.most_due, _MOST_PARTS), set_aside.current()
    rows = reads.due_tasks(connection, now, most + len(aside))
    due = [str(row[0]) for row in rows if row[0] not in aside]
    result, claimed = total.result, 0
    for task_id in sorted(due[:most]):
        only_this = replace(
            capacity,
            slots=max(capacity.slots - claimed, 0),
            running=capacity.running + claimed,
            only_due=task_id,
        )
        problem = commit(Batch(), only_this, total)
        if problem is not None:
            log.error("task.set_aside", task=task_id, error=problem)
            set_aside.add(task_id)
        claimed += len(result.claimed)
        # Before the next part, which may fail for the database's sake: these are claimed.
        loader.add_claims(result)
        result.claimed = []
        if result.is_isolated or result.is_draining:
            break
    result.has_more = claimed > 0 or len(due) > most
