"""Applies the calls of external workers to the tasks that a transaction has locked.

Calls on leases come first: work that they release can be claimed in the same transaction. What belongs to a
task that another transaction holds is carried into the next batch.
"""

from agent.store.db.json_values import set_of
from agent.store.engine import reads, work_rows
from agent.store.engine.reads import Rows
from agent.store.engine.work_rows import WorkRow
from agent.tasks.commit import due_tasks, work_reads
from agent.tasks.commit.scope import TxScope
from agent.tasks.commit.work_reads import WorkReads
from agent.tasks.rules.external_work import lease_calls, work_claims, work_expiry
from agent.tasks.rules.external_work.work_claims import Candidate, WorkContext
from agent.tasks.rules.external_work.work_parts import LeaseCall, LeaseResult, WorkClaim
from agent.tasks.state.locked_task import LockedTask
from agent.tasks.state.rows import STEP_COLUMNS

MOST_TRIES = 10
"""A claim is repeated this often where other transactions hold all that it could get."""


def apply(scope: TxScope) -> None:
    """Apply calls on leases, then grant claims."""
    preread = scope.work_reads
    if preread is None:
        # A batch of claims alone reads nothing when it begins.
        preread = work_reads.read(scope.connection, scope.batch.work)
    calls, claims = work_reads.split(scope.batch.work)
    if calls:
        _add_work(scope, preread.leased)
        _apply_calls(scope, calls)
    if claims:
        _grant(scope, claims, preread)


def _add_work(scope: TxScope, rows: Rows) -> None:
    """Add rows of tasks that this transaction has locked; one that is in memory wins."""
    for values in rows:
        row = WorkRow(*values)
        locked = scope.tasks.get(row.task_id)
        if locked is not None:
            locked.work.setdefault(row.id, row)


def _apply_calls(scope: TxScope, calls: list[LeaseCall]) -> None:
    for call in calls:
        task_id = call.address.task_id
        locked = scope.tasks.get(task_id)
        if locked is not None:
            scope.result.worked.append((call, _apply_call(scope, locked, call)))
        elif task_id in scope.result.gone:
            scope.result.worked.append((call, LeaseResult(lost="unknown")))
        else:
            call.tries += 1
            scope.result.carried_work.append(call)


def _apply_call(scope: TxScope, locked: LockedTask, call: LeaseCall) -> LeaseResult:
    if call.verb == "expire":
        return work_expiry.check_now(scope.connection, locked, call, scope.capacity.answering)
    return lease_calls.apply(scope.connection, locked, call)


def _grant(scope: TxScope, claims: list[WorkClaim], preread: WorkReads) -> None:
    candidates = work_claims.find_candidates(claims, preread.claimed, preread.queued)
    context = _lock(scope, candidates.all)
    is_any_held = any(one.task_id not in scope.tasks for one in candidates.all)
    for claim, result in work_claims.grant(scope.tasks, claims, candidates, context):
        if not result.leased and is_any_held and claim.tries < MOST_TRIES:
            claim.tries += 1
            scope.result.carried_work.append(claim)
        else:
            scope.result.worked.append((claim, result))


def _lock(scope: TxScope, candidates: list[Candidate]) -> dict[str, WorkContext]:
    """Lock the tasks of candidates without waiting, and read their rows under the locks.

    Return the further facts of the candidates for their workers, by the id of the work.
    """
    if not candidates:
        return {}
    unlocked = sorted({one.task_id for one in candidates if one.task_id not in scope.tasks})
    steps = [
        [one.task_id, one.step_index, one.parallel_index]
        for one in candidates
        if not _has_step(scope, one)
    ]
    then = [
        work_rows.claimable_statement(scope.connection.sql, [one.work_id for one in candidates])
    ]
    if steps:
        statement = reads.addresses_statement(scope.connection.sql, STEP_COLUMNS)
        then.append((statement, {"rows": set_of(steps)}))
    # A task that is held here delays no due one.
    has_locked = scope.result.has_locked
    rows, *step_rows = due_tasks.lock(scope, unlocked, then)
    scope.result.has_locked = has_locked
    for values in step_rows[0] if steps else ():
        scope.add_step(values)
    _add_work(scope, [values[:-2] for values in rows])
    return {values[0]: WorkContext(*values[-2:]) for values in rows}


def _has_step(scope: TxScope, candidate: Candidate) -> bool:
    locked = scope.tasks.get(candidate.task_id)
    return locked is not None and locked.has((candidate.step_index, candidate.parallel_index))
