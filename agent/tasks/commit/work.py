"""Applies the calls of external workers to the tasks that a transaction has locked.

Calls on leases come first: what they release can be claimed in the same transaction. What belongs to a
task that another transaction holds is carried into the next batch.
"""

from agent.store.engine import reads, work_rows
from agent.tasks.commit import due_tasks
from agent.tasks.commit.scope import TxScope
from agent.tasks.rules import lease_calls, work_claims
from agent.tasks.rules.work_parts import LeaseCall, LeaseResult, WorkClaim
from agent.tasks.state.rows import STEP_COLUMNS

MOST_TRIES = 10
"""A claim is repeated this often where other transactions hold all that it could get."""


def apply(scope: TxScope) -> None:
    """Apply calls on leases, then grant claims."""
    calls = [part for part in scope.batch.work if isinstance(part, LeaseCall)]
    claims = [part for part in scope.batch.work if isinstance(part, WorkClaim)]
    if calls:
        _apply_calls(scope, calls)
    if claims:
        _grant(scope, claims)


def _apply_calls(scope: TxScope, calls: list[LeaseCall]) -> None:
    by_task: dict[str, list[str]] = {}
    for call in calls:
        by_task.setdefault(call.address.task_id, []).append(call.address.work_id)
    wanted = {task_id: ids for task_id, ids in by_task.items() if task_id in scope.tasks}
    _load_work(scope, wanted)
    for call in calls:
        task_id = call.address.task_id
        locked = scope.tasks.get(task_id)
        if locked is not None:
            result = lease_calls.apply(scope.connection, locked, call)
            scope.result.worked.append((call, result))
        elif task_id in scope.result.gone:
            scope.result.worked.append((call, LeaseResult(lost="unknown")))
        else:
            call.tries += 1
            scope.result.carried_work.append(call)


def _load_work(scope: TxScope, wanted: dict[str, list[str]]) -> None:
    """Read rows of several tasks in one statement, after their locks."""
    missing = {
        work_id
        for task_id, ids in wanted.items()
        for work_id in ids
        if work_id not in scope.tasks[task_id].work
    }
    if missing:
        for row in work_rows.find(scope.connection, missing).values():
            locked = scope.tasks.get(row.task_id)
            if locked is not None:
                locked.work.setdefault(row.id, row)


def _grant(scope: TxScope, claims: list[WorkClaim]) -> None:
    tx = scope.connection
    candidates = work_claims.find_candidates(tx, claims)
    found = candidates.all
    unlocked = {one.task_id for one in found if one.task_id not in scope.tasks}
    if unlocked:
        # A task that is held here delays no due one.
        has_locked = scope.result.has_locked
        due_tasks.lock(scope, sorted(unlocked))
        scope.result.has_locked = has_locked
    mine = [one for one in found if one.task_id in scope.tasks]
    wanted: dict[str, list[str]] = {}
    missing = []
    for one in mine:
        wanted.setdefault(one.task_id, []).append(one.work_id)
        if not scope.tasks[one.task_id].has((one.step_index, one.parallel_index)):
            missing.append([one.task_id, one.step_index, one.parallel_index])
    if missing:
        for values in reads.steps_at(tx, STEP_COLUMNS, missing):
            scope.add_step(values)
    _load_work(scope, wanted)
    for claim, result in work_claims.grant(tx, scope.tasks, claims, candidates):
        is_held_back = not result.leased and len(mine) < len(found) and claim.tries < MOST_TRIES
        if is_held_back:
            claim.tries += 1
            scope.result.carried_work.append(claim)
        else:
            scope.result.worked.append((claim, result))
