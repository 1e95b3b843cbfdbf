"""Applies the content of a batch to the tasks that a transaction has locked.

Parts for a task that another transaction holds are carried into the next batch.
"""

from typing import Final

from agent.core.state_machine import CallStatus
from agent.steps.types.call_records import CallResult
from agent.steps.types.outcome import Json, Retry, Returned, StepError
from agent.steps.types.snapshot import SnapshotOperation
from agent.steps.types.state_values import StateOperation
from agent.store.engine import call_rows
from agent.tasks.commit.batch import Completion, JournalEntry
from agent.tasks.commit.scope import TxScope
from agent.tasks.rules import advance, child_tasks, settlement, snapshots
from agent.tasks.rules.budget_reservations import BudgetLocks, lock_budgets
from agent.tasks.rules.state_writes import LockedState, change_of
from agent.tasks.state.locked_task import LockedTask
from agent.tasks.state.rows import StepRow

_RETURN_SECONDS: Final = 1.0
"""So that the completion of the attempt, which is late then, arrives before the step is claimed again."""


def apply(scope: TxScope) -> None:
    """Apply journal entries, then completions, then the ends of child tasks."""
    _lock_state(scope)
    _record_entries(scope)
    _settle_completions(scope)
    if scope.state is not None:
        scope.state.flush()
        scope.result.state = scope.state.values
    _end_children(scope)


def _lock_state(scope: TxScope) -> None:
    """Lock the values of `state` that the batch uses; usually none."""
    keys = scope.batch.state_keys()
    if keys:
        scope.state = LockedState(
            scope.connection, keys, scope.now, is_waiting=scope.batch.must_wait
        )


def _record_entries(scope: TxScope) -> None:
    batch, result = scope.batch, scope.result
    intents = ((entry.claim.task_id, entry.intent) for entry in batch.entries)
    locks = lock_budgets(scope.connection, scope.graphs, scope.tasks, intents)
    for entry in batch.entries:
        locked = scope.tasks.get(entry.claim.task_id)
        if entry.claim.task_id in result.gone:
            result.journaled.append((entry, False))
        elif locked is None or not _has_state(scope, entry):
            entry.tries += 1
            result.carried_entries.append(entry)
        else:
            is_recorded = _record(scope, locked, entry, locks)
            result.journaled.append((entry, is_recorded))
    if locks is not None:
        locks.write(scope.connection)


def _settle_completions(scope: TxScope) -> None:
    result, worker_id = scope.result, scope.capacity.worker_id
    for completion in scope.batch.completions:
        claim = completion.claim
        locked = scope.tasks.get(claim.task_id)
        if claim.task_id in result.gone:
            result.settled.append((completion, False))
        elif locked is None or not _has_state(scope, completion):
            completion.tries += 1
            result.carried_completions.append(completion)
        elif _is_conflict(scope, locked, completion):
            result.conflicts.append(completion)
        else:
            is_held = settlement.settle(
                scope.connection,
                locked,
                claim,
                completion.outcome,
                worker_id,
                scope.state,
                is_early=completion.is_early,
            )
            if is_held:
                _emit_unknown(locked, completion)
            result.settled.append((completion, is_held))


def _has_state(scope: TxScope, part: Completion | JournalEntry) -> bool:
    """Whether the transaction has locked the names of `state` that a part uses."""
    if scope.state is None:
        return True
    if isinstance(part, JournalEntry):
        return part.state is None or scope.state.holds([part.state.key])
    change = change_of(part.outcome)
    return change is None or scope.state.holds(change.keys)


def _is_conflict(scope: TxScope, locked: LockedTask, completion: Completion) -> bool:
    """Whether a value has changed that a completion's `set_state` was rendered from."""
    if scope.state is None:
        return False
    change, claim = change_of(completion.outcome), completion.claim
    if change is None or not scope.state.has_moved(change):
        return False
    # An outcome under an old claim writes nothing: it needs no other values.
    step = locked.steps.get((claim.index, claim.parallel_index))
    return settlement.holds(step, claim, scope.capacity.worker_id)


def _end_children(scope: TxScope) -> None:
    for end in scope.batch.child_ends:
        locked = scope.tasks.get(end.parent_task_id)
        if end.parent_task_id in scope.result.gone:
            continue
        if locked is None:
            scope.result.carried_ends.append(end)
        else:
            child_tasks.wake_parent(scope.connection, locked, end)


def _record(
    scope: TxScope, locked: LockedTask, entry: JournalEntry, locks: BudgetLocks | None
) -> bool:
    """Record a journal entry; return whether its claim allowed that.

    The result of a call is recorded even if the claim is gone.
    """
    entry.refusal = None
    if entry.result is not None:
        if _is_refuted(scope, locked, entry.result):
            # The attempt would succeed by a call that failed. Its next run goes by the record.
            settlement.settle(
                scope.connection,
                locked,
                entry.claim,
                Returned("a late result of its call says that it failed", _RETURN_SECONDS),
                scope.capacity.worker_id,
                is_early=True,
            )
        locked.results.append(entry.result)
        return True
    step = locked.steps.get((entry.claim.index, entry.claim.parallel_index))
    if step is None or not settlement.holds(step, entry.claim, scope.capacity.worker_id):
        return False
    if entry.state is not None:
        return _operate(scope, locked, step, entry, entry.state)
    if entry.snapshot is not None:
        return _append_snapshot(scope, locked, step, entry, entry.snapshot)
    if entry.checkpoint is not None:
        step.set_columns(checkpoint=entry.checkpoint)
    if entry.delay is not None:
        event = "step.delayed" if entry.delay else "step.proceeded"
        locked.emit(event, step, entry.delay or None)
    if entry.alone is not None:
        step.alone = entry.alone
    return entry.intent is None or _intend(locked, step, entry, locks)


def _is_refuted(scope: TxScope, locked: LockedTask, result: CallResult) -> bool:
    """Whether a check found that a call happened whose failure has been recorded meanwhile."""
    if not result.is_resolved_by_check or result.status is not CallStatus.SUCCEEDED:
        return False
    key = result.idempotency_key
    recorded = call_rows.recorded_results(scope.connection, [key])
    first = next((own.status for own in locked.results if own.idempotency_key == key), None)
    return (recorded[key][0] if key in recorded else first) == CallStatus.FAILED


def _operate(
    scope: TxScope,
    locked: LockedTask,
    step: StepRow,
    entry: JournalEntry,
    operation: StateOperation,
) -> bool:
    """Change or read `state`, and record that as a call with its result; return False if refused."""
    intent, state = entry.intent, scope.state
    assert intent is not None and state is not None
    if not _may_act(locked, step):
        return False
    if not state.operate(locked, step, operation, intent.call_id):
        return False
    _record_answer(locked, step, entry, operation.answer)
    return True


def _append_snapshot(
    scope: TxScope,
    locked: LockedTask,
    step: StepRow,
    entry: JournalEntry,
    operation: SnapshotOperation,
) -> bool:
    """Append a snapshot, and record that as a call with its result; return False if refused."""
    operation.refusal = None
    if not _may_act(locked, step):
        return False
    by = f"step:{locked.definition(step).name}"
    new = snapshots.NewSnapshot(operation.text, operation.label)
    appended = snapshots.append(scope.connection, locked, step, new, by)
    if isinstance(appended, StepError):
        operation.refusal = appended.message
        return False
    operation.answer = {"snapshot": appended}
    _record_answer(locked, step, entry, operation.answer)
    return True


def _record_answer(locked: LockedTask, step: StepRow, entry: JournalEntry, answer: Json) -> None:
    """Record the call of an entry together with its result."""
    intent = entry.intent
    assert intent is not None
    _intend(locked, step, entry, None)
    locked.results.append(
        CallResult(intent.call_id, intent.idempotency_key, CallStatus.SUCCEEDED, answer)
    )


def _may_act(locked: LockedTask, step: StepRow) -> bool:
    return locked.task.phase != "failing" or advance.is_cleanup(locked, step)


def _intend(
    locked: LockedTask, step: StepRow, entry: JournalEntry, locks: BudgetLocks | None
) -> bool:
    """Record an intent; return False where the task is failing or a budget refuses it."""
    intent = entry.intent
    assert intent is not None
    if not _may_act(locked, step):
        return False
    if intent.reservation is not None:
        assert locks is not None
        entry.refusal = locks.reserve(locked, step, intent)
        if entry.refusal is not None:
            return False
    # With the attempt's number: a completion in the same transaction may begin the next attempt.
    locked.intents.append((step.id, step.attempt, intent))
    locked.emit("tool_call.intended", step, {"call": intent.call_id, "action": intent.action})
    if intent.settles_step:
        step.idempotency_key = intent.idempotency_key
    if intent.process_id is not None:
        step.process_id = intent.process_id
        step.set_columns(process_started=intent.process_started)
    return True


def _emit_unknown(locked: LockedTask, completion: Completion) -> None:
    """Emit that an effect of this attempt may have happened.

    A later attempt that waits on the same unknown call emits its approval instead.
    """
    outcome = completion.outcome
    if isinstance(outcome, Retry) and outcome.is_unknown:
        locked.emit("tool_call.unknown", None, {"step": completion.claim.step_id})
