"""One transaction of a worker: it applies outcomes, records, creates and claims.

It begins with the fence and everything that can be read at once, in one round trip. All writes and the
COMMIT go in another.
"""

from dataclasses import replace

from agent.core.state_machine import TASK_ENDED, StepStatus, WorkStatus
from agent.store.engine import task_rows, workflow_versions, writes
from agent.tasks.commit import work
from agent.tasks.commit.apply import apply
from agent.tasks.commit.batch import TxResult
from agent.tasks.commit.begin import begin
from agent.tasks.commit.scope import TxScope
from agent.tasks.rules import (
    advance,
    call_ledger,
    child_tasks,
    claiming,
    creation,
    row_writer,
    state_writes,
)
from agent.tasks.rules.creation import Submission
from agent.tasks.rules.firings import firing
from agent.tasks.state.locked_task import LockedTask


def run(scope: TxScope) -> TxResult:
    """Run a worker's transaction; the caller commits."""
    tx, batch, result = scope.connection, scope.batch, scope.result
    begin(scope)
    apply(scope)
    if batch.work:
        work.apply(scope)
    call_ledger.resolve(tx, scope.tasks.values())
    for locked in scope.tasks.values():
        advance.advance(tx, locked)
    tasks = [*scope.tasks.values(), *_create(scope)]
    if batch.trigger_updates:
        tasks += _fire(scope)
    _claim(scope, tasks)
    row_writer.write(tx, tasks, scope.now)
    state_writes.record_reads(tx, result.claimed)
    if batch.logs:
        writes.insert_logs(tx, batch.logs)
    result.soonest = scope.cache.close(tx, tasks)
    result.locked_tasks = tasks
    for locked in tasks:
        _report(locked, result)
    return result


def _claim(scope: TxScope, tasks: list[LockedTask]) -> None:
    """Claim as many due steps as there are slots, and notify other workers of the rest."""
    result, capacity = scope.result, scope.capacity
    if postponed := len(result.conflicts) + len(result.carried_completions):
        # Their attempts keep their slots, and an isolated one its isolation.
        capacity = replace(
            capacity,
            slots=max(capacity.slots - postponed, 0),
            running=capacity.running + postponed,
        )
    slots = capacity.slots
    claims = claiming.claim(tasks, capacity)
    result.claimed = claims.steps
    result.is_draining, result.is_isolated = claims.is_draining, claims.is_isolated
    # Without a free slot there is nothing to poll for: the next completion brings the next commit.
    has_slots = len(claims.steps) < slots and not claims.is_draining
    result.has_more = result.has_more and has_slots and len(claims.steps) > 0
    # Only for work that this transaction made due: workers without a slot would otherwise wake each other
    # for ever over steps that each of them finds due.
    if claims.left_over > 0 and len(claims.steps) >= slots and not scope.batch.is_empty:
        scope.connection.notify()


def _create(scope: TxScope) -> list[LockedTask]:
    """Create the submitted tasks, and the child tasks that steps asked for."""
    tx = scope.connection
    new: list[LockedTask] = []
    versions: dict[int, int] = {}
    """By the identity of their graphs: most submissions of a batch share one."""
    # A batch may hold the same dedupe key twice.
    by_key: dict[str, str] = {}
    for submission in scope.batch.submissions:
        existing, key = None, submission.dedupe_key
        if key is not None:
            existing = by_key.get(key) or task_rows.task_by_dedupe_key(tx, key)
            by_key[key] = existing or submission.task_id
        if existing is None:
            version = versions.get(id(submission.graph))
            if version is None:
                version = versions[id(submission.graph)] = _version(scope, submission)
            new.append(creation.create(tx, submission, version, scope.now))
        scope.result.created[submission.task_id] = existing or submission.task_id
    for locked in scope.tasks.values():
        if locked.children:
            new += _create_children(scope, locked)
    return new


def _fire(scope: TxScope) -> list[LockedTask]:
    """Apply the plans for triggers; their tasks are claimed in this transaction already."""
    result = scope.result
    fired = firing.fire(scope.connection, scope.graphs, scope.batch.trigger_updates, scope.now)
    result.fired = fired.done
    result.carried_updates = fired.carried
    result.events += fired.events
    return fired.tasks


def _create_children(scope: TxScope, locked: LockedTask) -> list[LockedTask]:
    tx, max_depth = scope.connection, scope.capacity.max_depth
    children = [
        child_tasks.create_child(tx, locked, step, child_request, scope.graphs, max_depth)
        for step, child_request in locked.children
        if step.status == StepStatus.WAITING
    ]
    advance.advance(tx, locked)
    return [child for child in children if child is not None]


def _version(scope: TxScope, submission: Submission) -> int:
    """Return the version of a submission's workflow, cached where the database checks it."""
    versions = scope.cache.versions
    graph = submission.graph
    workflow = (graph.name, graph.hash, submission.path, graph.code_text)
    version = versions.get(workflow) if scope.can_assume else None
    if version is not None:
        workflow_versions.assume(scope.connection, graph.name, version)
        return version
    version = versions[workflow] = creation.register(scope.connection, submission, scope.now)
    return version


def _report(locked: LockedTask, result: TxResult) -> None:
    """Collect the result that the worker acts on after the commit."""
    task = locked.task
    result.events += locked.events
    result.stops += [(step.id, step.claim_token) for step in locked.stops]
    result.orphans += locked.orphans
    result.pauses += locked.pauses
    if locked.new_work or locked.changed_work:
        result.queued += [row.queue for row in locked.new_work]
        changed = (locked.work[work_id] for work_id in locked.changed_work)
        result.queued += [row.queue for row in changed if row.status == WorkStatus.QUEUED]
    was = task.original[1] if task.original else None
    if task.status in TASK_ENDED and was not in TASK_ENDED:
        if task.trigger_id is not None:
            result.ended_triggers.append(task.trigger_id)
        result.ended.append(
            child_tasks.ChildEnd(
                task.id, task.status, task.parent_task_id or "", task.parent_step_id
            )
        )
