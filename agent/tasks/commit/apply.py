"""Applies what a batch carries to the tasks that a transaction has locked.

What belongs to a task that another transaction holds is carried into the next batch.
"""

from agent.steps.types.outcome import Retry
from agent.tasks.commit.batch import Completion, JournalEntry
from agent.tasks.commit.scope import TxScope
from agent.tasks.rules import advance, child_tasks, settlement
from agent.tasks.rules.budget_reservations import BudgetLocks, lock_budgets
from agent.tasks.state.locked_task import LockedTask
from agent.tasks.state.rows import StepRow


def apply(scope: TxScope) -> None:
    """Apply journal entries, then completions, then the ends of child tasks."""
    _record_entries(scope)
    _settle_completions(scope)
    _end_children(scope)


def _record_entries(scope: TxScope) -> None:
    batch, result = scope.batch, scope.result
    intents = ((entry.claim.task_id, entry.intent) for entry in batch.entries)
    locks = lock_budgets(scope.connection, scope.graphs, scope.tasks, intents)
    for entry in batch.entries:
        locked = scope.tasks.get(entry.claim.task_id)
        if entry.claim.task_id in result.gone:
            result.journaled.append((entry, False))
        elif locked is None:
            entry.tries += 1
            result.carried_entries.append(entry)
        else:
            is_recorded = _record(locked, entry, scope.capacity.worker_id, locks)
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
        elif locked is None:
            completion.tries += 1
            result.carried_completions.append(completion)
        else:
            is_held = settlement.settle(
                scope.connection, locked, claim, completion.outcome, worker_id
            )
            if is_held:
                _emit_unknown(locked, completion)
            result.settled.append((completion, is_held))


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
    locked: LockedTask, entry: JournalEntry, worker_id: str, locks: BudgetLocks | None
) -> bool:
    """Record a journal entry; return whether its claim allowed that.

    The result of a call is recorded even if the claim is gone.
    """
    entry.refusal = None
    if entry.result is not None:
        locked.results.append(entry.result)
        return True
    step = locked.steps.get((entry.claim.index, entry.claim.parallel_index))
    if step is None or not settlement.holds(step, entry.claim, worker_id):
        return False
    if entry.checkpoint is not None:
        step.also(checkpoint=entry.checkpoint)
    if entry.delay is not None:
        event = "step.delayed" if entry.delay else "step.proceeded"
        locked.emit(event, step, entry.delay or None)
    return entry.intent is None or _intend(locked, step, entry, locks)


def _intend(
    locked: LockedTask, step: StepRow, entry: JournalEntry, locks: BudgetLocks | None
) -> bool:
    """Record an intent; return False where the task is failing or a budget refuses it."""
    intent = entry.intent
    assert intent is not None
    if locked.task.phase == "failing" and not advance.is_cleanup(locked, step):
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
        step.also(process_started=intent.process_started)
    return True


def _emit_unknown(locked: LockedTask, completion: Completion) -> None:
    """Emit that an effect of this attempt may have happened.

    A later attempt that waits on the same unknown call emits its approval instead.
    """
    outcome = completion.outcome
    if isinstance(outcome, Retry) and outcome.is_unknown:
        locked.emit("tool_call.unknown", None, {"step": completion.claim.step_id})
