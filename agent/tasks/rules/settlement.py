"""Applying the outcome of an attempt: one clause per outcome, each with all its consequences.

The claim is the fence: an outcome under an old claim changes no task and no step. The results of its
calls still resolve their rows of the ledger, and the event `step.abandoned` records that it was late.
"""

import json
from dataclasses import dataclass
from typing import Final

from agent.core.clock import SECOND
from agent.core.ids import random_fraction
from agent.core.state_machine import TASK_ENDED, StepStatus, TaskStatus
from agent.core.waits import ChildRequest, Signal, Timer, UnknownCall, Wait
from agent.steps.types.outcome import (
    Failed,
    Json,
    Outcome,
    Paused,
    Question,
    Retry,
    Returned,
    StepError,
    Succeeded,
    Waiting,
    WorkOffer,
)
from agent.store.db import json_values
from agent.store.db.database import Connection
from agent.store.engine import call_rows, signals
from agent.tasks.rules import advance, approvals, budgets, fanout
from agent.tasks.rules.external_work import work_leases
from agent.tasks.rules.state_writes import LockedState
from agent.tasks.state import transitions
from agent.tasks.state.locked_task import LockedTask
from agent.tasks.state.rows import StepRow
from agent.workflows.graph import RetryPolicy

PATIENT_ATTEMPTS: Final = 10
"""Of a step that did not reach its remote, by the default policy: about seven minutes."""
_UNREACHED: Final = frozenset({"refused", "dns", "no_cluster"})
"""Codes of errors after which nothing can have been sent."""
CHILD_CHECK_US = 15 * SECOND
"""How often a step checks its child by itself; the child's end wakes it at once."""


@dataclass(slots=True)
class Claim:
    """A worker's right to one attempt; its outcome counts only while the step still has this claim."""

    task_id: str
    step_id: str
    index: int
    parallel_index: int
    attempt: int
    token: int


def claim_on(step: StepRow) -> Claim:
    """Return the claim of a running step."""
    return Claim(
        step.task_id, step.id, step.index, step.parallel_index, step.attempt, step.claim_token
    )


def holds(step: StepRow | None, claim: Claim, worker_id: str) -> bool:
    """Whether a step still has a claim."""
    return (
        step is not None
        and step.id == claim.step_id
        and step.status == StepStatus.RUNNING
        and step.claim_token == claim.token
        and step.owner == worker_id
    )


def settle(
    tx: Connection,
    locked: LockedTask,
    claim: Claim,
    outcome: Outcome,
    worker_id: str,
    state: LockedState | None = None,
    *,
    is_early: bool = False,
) -> bool:
    """Apply an outcome to its step; return whether it was applied.

    It is not if another worker has the step, or if the task has ended. `state` holds the locks of what the outcome writes to `state`.
    After an early outcome another one follows, which is the late one.
    """
    step = locked.steps.get((claim.index, claim.parallel_index))
    if step is None or not holds(step, claim, worker_id) or locked.task.status in TASK_ENDED:
        if not is_early:
            data: dict[str, Json] = {
                "step": claim.step_id,
                "outcome": type(outcome).__name__.lower(),
                "attempt": claim.attempt,
            }
            locked.emit("step.abandoned", None, data)
        return False
    is_stopped = locked.task.phase == "failing" and not advance.is_cleanup(locked, step)
    if is_stopped and (not isinstance(outcome, Succeeded | Failed) or _would_expand(outcome)):
        # Something else ends the task: this step starts no attempt, no wait and no items.
        transitions.skip(locked, step, advance.end_reason(locked))
        return True
    _apply(tx, locked, step, outcome, state)
    return True


def _would_expand(outcome: Outcome) -> bool:
    return isinstance(outcome, Succeeded) and outcome.items is not None


def _apply(
    tx: Connection,
    locked: LockedTask,
    step: StepRow,
    outcome: Outcome,
    state: LockedState | None,
) -> None:
    match outcome:
        case Succeeded():
            _succeed(locked, step, outcome, state)
        case Retry():
            retry_or_fail(locked, step, outcome)
        case Failed():
            if outcome.idempotency_key is not None:
                step.idempotency_key = outcome.idempotency_key
            transitions.fail(locked, step, outcome.error)
        case Waiting():
            _wait(tx, locked, step, outcome)
        case Paused():
            if outcome.exhausted is not None:
                locked.emit("budget.exhausted", step, {"reason": outcome.exhausted})
                why = budgets.budget_pause(outcome.exhausted, outcome.command)
                budgets.pause(locked, why)
            checkpoint = _checkpoint(outcome.checkpoint)
            transitions.pause_step(locked, step, checkpoint)
            if locked.task.status != TaskStatus.PAUSED:
                # A person has resumed the task before this attempt could stop.
                transitions.resume_step(locked, step)
        case Returned():
            wake_at = locked.now + int(outcome.delay_seconds * SECOND)
            transitions.return_unstarted(locked, step, outcome.reason, wake_at)


def _succeed(
    locked: LockedTask, step: StepRow, outcome: Succeeded, state: LockedState | None
) -> None:
    if outcome.skipped is not None:
        transitions.skip(locked, step, outcome.skipped)
    elif outcome.items is not None:
        fanout.expand(locked, step, outcome.items)
    else:
        try:
            output = outcome.text or json_values.encode(outcome.output, "output")
        except json_values.NotPlainJsonError as error:
            # The ledger keeps the effect's result; only the output cannot be stored.
            transitions.fail(locked, step, StepError("bad_output", "code", str(error)))
            return
        change = outcome.state
        if change is not None:
            assert state is not None
            refusal = state.refusal(change.writes)
            if refusal is not None:
                transitions.fail(locked, step, StepError("state_full", "limit", refusal))
                return
        transitions.succeed(locked, step, output, outcome.idempotency_key)
        if outcome.exchange is not None:
            locked.exchanges.append((step.id, outcome.exchange))
        if change is not None and state is not None:
            state.settle(locked, step, change)


def retry_or_fail(locked: LockedTask, step: StepRow, outcome: Retry) -> None:
    """Schedule the next attempt, or fail the step when none is left.

    A step with an unknown outcome gets another attempt even after the last one: only an attempt can apply
    the step's `on_unknown`. It may use recorded results and ask, but not act (`steps.attempt.attempt_limits`).
    """
    failures = step.failures + (0 if outcome.is_unknown else 1)
    policy = locked.definition(step).retry
    if step.attempt >= step.max_attempts and not outcome.is_unknown:
        # Nothing was sent: another attempt is safe, and a step that does not say how often it is tried
        # waits for its remote to come back.
        is_unreached = outcome.error.kind == "transport" and outcome.error.code in _UNREACHED
        if not is_unreached or policy != RetryPolicy() or step.attempt >= PATIENT_ATTEMPTS:
            transitions.fail(locked, step, outcome.error.of_last_attempt(step.max_attempts))
            return
        step.max_attempts = step.attempt + 1
    seconds = policy.delay_after(step.attempt, random_fraction(), outcome.delay_seconds)
    wake_at = locked.now + int(seconds * SECOND)
    transitions.retry(locked, step, outcome.error, wake_at, failures)


def _wait(tx: Connection, locked: LockedTask, step: StepRow, outcome: Waiting) -> None:
    """Let the step wait. A signal or a resolution that arrived before wakes it at once."""
    if outcome.checkpoint is None:
        approvals.unwrap_checkpoint(tx, step)
    match outcome.on:
        case Question() as question:
            approvals.ask(tx, locked, step, question, outcome.checkpoint)
        case UnknownCall(call_id) if not call_rows.is_call_resolved(tx, call_id):
            approvals.ask_about_unknown(
                tx, locked, step, call_id, outcome.checkpoint, outcome.changed_request
            )
        case UnknownCall() as call:
            _park(locked, step, outcome, call)
            transitions.wake(locked, step)
        case ChildRequest() as request:
            _park(locked, step, outcome, request, locked.now + CHILD_CHECK_US)
            locked.children.append((step, request))
        case Signal(name) as signal:
            _park(locked, step, outcome, signal, outcome.wake_at)
            take_signal(tx, locked, step, name)
        case WorkOffer() as offer:
            work_leases.offer(locked, step, offer)
        case Timer() as timer:
            _park(locked, step, outcome, timer, outcome.wake_at)


def _park(
    locked: LockedTask, step: StepRow, outcome: Waiting, on: Wait, wake_at: int | None = None
) -> None:
    transitions.wait(locked, step, on, wake_at, _checkpoint(outcome.checkpoint))


def take_signal(tx: Connection, locked: LockedTask, step: StepRow, name: str) -> bool:
    """Give a waiting step the oldest unconsumed signal of that name, if there is one."""
    oldest = signals.first_untaken(tx, locked.task.id, name)
    if oldest is None:
        return False
    signal_id, payload = oldest
    signals.take(tx, signal_id, step.id)
    transitions.wake(locked, step, {"value": json.loads(payload) if payload else None})
    return True


def _checkpoint(value: Json) -> str | None:
    return None if value is None else json_values.encode(value, "checkpoint")
