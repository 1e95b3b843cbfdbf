"""The beginning of a transaction: the fence, the locks, and the rows that it needs.

Where the cache has every row, on PostgreSQL nothing is read: the transaction states which versions it
relies on, and fails as stale if one has changed. Everything else is read in one round trip. Locks are
never waited for, except where `Batch.must_wait` says so.
"""

from agent.store.db.database import DeferredRows
from agent.store.engine import begin_tx, task_rows
from agent.tasks.commit import due_tasks, work_reads
from agent.tasks.commit.batch import Batch, Completion, JournalEntry
from agent.tasks.commit.faults import FencedError
from agent.tasks.commit.scope import TxScope
from agent.tasks.rules.external_work.work_parts import LeaseCall
from agent.tasks.state.rows import NO_ITEM, STEP_COLUMNS, TASK_COLUMNS

MAX_DUE_TASKS = 64
LOCK_TIMEOUT_MS = 200

StepKey = tuple[str, int, int]
"""A step by its task, its index and its parallel index."""


def begin(scope: TxScope) -> None:
    """Pass the fence, lock and read the tasks of the batch, and claimable tasks that are due."""
    batch, cache = scope.batch, scope.cache
    cache.open(scope.connection)
    scope.result.cache_generation = cache.generation
    task_ids = batch.task_ids()
    steps = _step_keys(batch)
    scope.tasks = cached = cache.take(sorted(task_ids), scope.now)
    unread = [key for key in steps if key[0] not in cached or not cached[key[0]].has(key[1:])]
    most_due = _most_due(scope)
    if scope.connection.can_assume:
        is_known = len(cached) == len(task_ids) and not unread and not batch.must_read
        if scope.may_assume and is_known and not most_due and not batch.must_wait:
            _assume(scope)
            return
        # Reading a part takes as many round trips as reading all of it.
        scope.tasks, unread = {}, steps
    _read(scope, task_ids, unread, most_due)


def _most_due(scope: TxScope) -> int:
    """Return how many due tasks to query; 0 when the cache knows that none is due."""
    capacity = scope.capacity
    if not capacity.must_query_due and not scope.cache.is_anything_due(scope.now):
        return 0
    return min(MAX_DUE_TASKS, capacity.most_due)


def _assume(scope: TxScope) -> None:
    """Rely on the cached rows; the database checks their versions."""
    capacity = scope.capacity
    versions = [(task_id, locked.version) for task_id, locked in scope.tasks.items()]
    scope.result.transaction = begin_tx.assume(
        scope.connection, capacity.worker_id, capacity.tx_number, versions
    )
    scope.result.is_assumed = True


def _read(scope: TxScope, task_ids: set[str], steps: list[StepKey], most_due: int) -> None:
    """Lock and read tasks and steps, and query due tasks."""
    tx, capacity, result = scope.connection, scope.capacity, scope.result
    if most_due:
        scope.cache.expect_due_query()
    if scope.batch.must_wait:
        tx.lock_timeout(LOCK_TIMEOUT_MS)
    work = work_reads.statements(tx.sql, scope.batch.work) if scope.batch.work else None
    rows = begin_tx.begin(
        tx,
        capacity.worker_id,
        capacity.tx_number,
        (TASK_COLUMNS, sorted(task_ids - scope.tasks.keys())),
        (STEP_COLUMNS, steps),
        (scope.now, most_due and most_due + len(capacity.passed_over)),
        more=work.all if work is not None else (),
        is_waiting=scope.batch.must_wait,
    )
    if not rows.fence:
        raise FencedError(capacity.worker_id)
    result.transaction = DeferredRows(rows.fence)
    if work is not None:
        scope.work_reads = work.collect(rows.more)
    for values in rows.tasks:
        scope.add_task(values)
    for values in rows.steps:
        scope.add_step(values)
    missing = task_ids - scope.tasks.keys()
    if missing:
        result.gone = missing - task_rows.existing_tasks(tx, sorted(missing))
    due = [row[0] for row in rows.due if row[0] not in capacity.passed_over]
    if capacity.only_due is not None:
        due = [capacity.only_due]
    result.has_more = len(due) >= most_due > 0
    if due:
        # A task of the batch that another transaction held was read without its lock: it is carried,
        # even if its lock is free by now.
        unlocked = [
            task_id for task_id in due if task_id not in scope.tasks and task_id not in task_ids
        ]
        due_tasks.lock(scope, unlocked)
        due_tasks.advance_due(scope, due)


def _step_keys(batch: Batch) -> list[StepKey]:
    """Return the steps of completions and journal entries, and the dependents of the completed."""
    keys: dict[StepKey, None] = {}
    parts: list[Completion | JournalEntry] = [*batch.completions, *batch.entries]
    for part in parts:
        claim = part.claim
        keys[(claim.task_id, claim.index, claim.parallel_index)] = None
        if claim.parallel_index >= 0:
            keys[(claim.task_id, claim.index, NO_ITEM)] = None
    for completion in batch.completions:
        claim = completion.claim
        if claim.parallel_index < 0:
            for index in completion.graph.dependents[claim.index]:
                keys[(claim.task_id, index, NO_ITEM)] = None
    for call in batch.work:
        if isinstance(call, LeaseCall):
            _, task_id, index, parallel_index = call.address
            keys[(task_id, index, parallel_index)] = None
            if parallel_index >= 0:
                keys[(task_id, index, NO_ITEM)] = None
    return list(keys)
