"""The transitions of a step and of a task: the only module that writes a status.

Each function makes one transition with everything that belongs to it: the counters of the task, the
claim, the slot in the window, the event. `advance` applies the consequences for other steps.
"""

import json
from typing import Final

from agent.core import waits
from agent.core.plain_json import Json
from agent.core.state_machine import (
    STEP,
    STEP_ENDED,
    TASK,
    WORK_OPEN,
    StepStatus,
    TaskStatus,
    moved,
)
from agent.core.waits import Child, Wait, Work
from agent.steps.types.outcome import StepError
from agent.tasks.state import pauses
from agent.tasks.state.isolation import (
    IS_ISOLATED,
    MUST_BE_ISOLATED,
    NOT_ISOLATED,
    WAITS_FOR_STORE,
)
from agent.tasks.state.locked_task import LockedTask
from agent.tasks.state.pauses import Pause
from agent.tasks.state.rows import StepRow

SKIPPED_BY_FAILURE: Final = frozenset({"upstream_failed", "fail_fast", "deadline"})
"""Reasons to skip a step that count as a failure for its dependents."""


def is_skipped_by_failure(step: StepRow) -> bool:
    """Whether a step that ended in this transaction was skipped because something failed."""
    return step.status == StepStatus.SKIPPED and step.extra.get("skip_reason") in SKIPPED_BY_FAILURE


def _move(
    locked: LockedTask, step: StepRow, event: str, data: dict[str, Json] | None = None
) -> None:
    """Set a step's status by its machine, release its claim if it had one, and emit the event."""
    target = moved(STEP, event, step.status)
    if step.status == StepStatus.WAITING:
        _leave_work(locked, step)
    if step.status == StepStatus.RUNNING:
        task = locked.task
        task.steps_running = task.steps_running - 1
        step.owner = None
        step.claim_turn = None
        if step.alone == IS_ISOLATED:
            step.alone = MUST_BE_ISOLATED
        elif step.alone == WAITS_FOR_STORE:
            step.alone = NOT_ISOLATED
        if step.process_id is not None:
            step.process_id = None
            step.set_columns(process_started=None)
    step.status = target
    locked.emit(event, step, data)


def _leave_work(locked: LockedTask, step: StepRow) -> None:
    """Withdraw the work that a step waited on, and its lease; work that has ended stays unchanged."""
    if step.waiting_on is None or not step.waiting_on.startswith('{"work"'):
        return
    on = step.wait
    assert isinstance(on, Work)
    row = locked.work.get(on.work_id)
    if row is None or row.status in WORK_OPEN:
        locked.withdrawn_work.append(on.work_id)


def _end(locked: LockedTask, step: StepRow) -> None:
    """Release the resources of an ended step: its slots, its wake time, its count among the open steps."""
    assert step.status in STEP_ENDED
    task = locked.task
    task.steps_open = task.steps_open - 1
    leave_windows(locked, step)
    step.wake_at = None
    step.waiting_on = None
    step.alone = NOT_ISOLATED
    step.set_columns(ended_at=locked.now)
    locked.ended.append(step)


def hold(locked: LockedTask, step: StepRow) -> None:
    """Hold a ready step until its window has a free slot."""
    if not step.held:
        step.held = 1
        locked.task.steps_held = locked.task.steps_held + 1


def let_go(locked: LockedTask, step: StepRow) -> None:
    """Stop holding a step."""
    if step.held:
        step.held = 0
        locked.task.steps_held = locked.task.steps_held - 1


def leave_windows(locked: LockedTask, step: StepRow) -> None:
    """Release a step's slot in the window, or stop holding it for one."""
    let_go(locked, step)
    if step.placed:
        step.placed = 0
        locked.task.places_taken = locked.task.places_taken - 1


def release(locked: LockedTask, step: StepRow) -> None:
    """Give a ready step a slot in the window and make it claimable now."""
    assert step.status == StepStatus.PENDING
    let_go(locked, step)
    if not step.placed:
        step.placed = 1
        locked.task.places_taken = locked.task.places_taken + 1
    step.wake_at = locked.now


def claim(
    locked: LockedTask,
    step: StepRow,
    worker_id: str,
    tx_number: int,
    check_at: int,
    *,
    is_isolated: bool,
) -> None:
    """Give a worker the right to run a step, under a token that no earlier claim had."""
    assert step.wake_at is not None
    step.status = moved(STEP, "step.claimed", step.status)
    locked.task.steps_running = locked.task.steps_running + 1
    step.owner = worker_id
    step.claim_turn = tx_number
    step.claim_token = step.claim_token + 1
    step.wake_at = check_at
    step.started_at = locked.now
    if is_isolated:
        step.alone = IS_ISOLATED
    locked.emit("step.claimed", step)


def succeed(
    locked: LockedTask, step: StepRow, output: str | None, idempotency_key: str | None = None
) -> None:
    """End a step that succeeded; `output` is JSON text, None for a group (a view over its items)."""
    _move(locked, step, "step.succeeded")
    step.set_columns(output=output)
    if step.attempt > 1:
        step.set_columns(error=None)
    if idempotency_key is not None:
        step.idempotency_key = idempotency_key
    _end(locked, step)


def fail(locked: LockedTask, step: StepRow, error: StepError) -> None:
    """End a step that failed; the first failure of a task is the task's error."""
    document = error.document(step.attempt)
    text = json.dumps(document, ensure_ascii=False)
    _move(locked, step, "step.failed", {"error": document})
    step.set_columns(error=text)
    task = locked.task
    if task.steps_failed == 0 and task.phase == "normal":
        named = {**document, "step": locked.title(step)}
        task.set_columns(error=json.dumps(named, ensure_ascii=False))
    task.steps_failed = task.steps_failed + 1
    _end(locked, step)


def skip(locked: LockedTask, step: StepRow, reason: str) -> None:
    """End a step that will not run, or whose attempt was stopped."""
    if step.status == StepStatus.WAITING:
        on = step.wait
        if isinstance(on, Child) and on.task_id is not None:
            locked.orphans.append(on.task_id)
        withdraw(locked, step, reason)
    _move(locked, step, "step.skipped", {"reason": reason})
    step.set_columns(skip_reason=reason)
    _end(locked, step)


def retry(locked: LockedTask, step: StepRow, error: StepError, wake_at: int, failures: int) -> None:
    """Put a step back for its next attempt; `failures` counts the definite ones."""
    document = error.document(step.attempt)
    _move(locked, step, "step.retried", {"error": document, "at": wake_at})
    step.attempt = step.attempt + 1
    step.wake_at = wake_at
    step.failures = failures
    step.alone = NOT_ISOLATED
    step.set_columns(error=json.dumps(document, ensure_ascii=False))


def lose(
    locked: LockedTask, step: StepRow, wake_at: int, error: StepError, *, must_isolate: bool
) -> None:
    """Rescue a step whose attempt is lost: it is pending again; the results of its calls are unknown.

    One that only waited for a store does not count: the step gets one more.
    """
    document = error.document(step.attempt)
    if step.alone == WAITS_FOR_STORE:
        step.max_attempts = step.max_attempts + 1
    _move(locked, step, "step.lost", {"reason": error.message})
    step.attempt = step.attempt + 1
    step.wake_at = wake_at
    step.alone = MUST_BE_ISOLATED if must_isolate else NOT_ISOLATED
    step.set_columns(error=json.dumps(document, ensure_ascii=False))


def return_unstarted(
    locked: LockedTask, step: StepRow, reason: str, wake_at: int | None = None
) -> None:
    """Return a step that did not begin, claimable at once or at an instant.

    Its attempt does not count.
    """
    _move(locked, step, "step.returned", {"reason": reason})
    step.wake_at = locked.now if wake_at is None else wake_at


def wait(
    locked: LockedTask,
    step: StepRow,
    on: Wait,
    wake_at: int | None,
    checkpoint: str | None,
) -> None:
    """Let a step wait on something named: no claim, no slot, no timeout."""
    _move(locked, step, "step.waiting", {"on": waits.to_document(on)})
    step.wait = on
    step.wake_at = wake_at
    step.alone = NOT_ISOLATED
    if checkpoint is not None:
        step.set_columns(checkpoint=checkpoint)


def wake(locked: LockedTask, step: StepRow, result: dict[str, Json] | None = None) -> None:
    """Make a waiting step claimable: its timer fired, or its wait is over."""
    _move(locked, step, "step.woken", result)
    step.waiting_on = waits.dump_ended(step.waiting_on, result)
    step.wake_at = locked.now


def withdraw(locked: LockedTask, step: StepRow, reason: str) -> None:
    """Withdraw the question that a waiting step asks a person, if it asks one."""
    assert step.status == StepStatus.WAITING
    approval_id = waits.approval_of(step.wait)
    if approval_id is not None:
        locked.withdrawals.append(approval_id)
        locked.emit("approval.withdrawn", step, {"approval": approval_id, "reason": reason})


def pause_step(locked: LockedTask, step: StepRow, checkpoint: str | None) -> None:
    """Record that an attempt stopped at a checkpoint for a paused task."""
    _move(locked, step, "step.paused")
    step.wake_at = None
    step.alone = NOT_ISOLATED
    if checkpoint is not None:
        step.set_columns(checkpoint=checkpoint)


def resume_step(locked: LockedTask, step: StepRow) -> None:
    """Make a paused step claimable again."""
    _move(locked, step, "step.resumed")
    step.wake_at = locked.now


def abandon(locked: LockedTask, step: StepRow) -> None:
    """Clear the claim of a step of a cancelled task.

    Steps have no cancelled state: an attempt in flight is stopped, and its step is pending again.
    """
    if step.status == StepStatus.RUNNING:
        _move(locked, step, "step.returned", {"reason": "task canceled"})
        locked.stops.append(step)
    elif step.status == StepStatus.WAITING:
        withdraw(locked, step, "task canceled")
        _leave_work(locked, step)
    leave_windows(locked, step)
    step.wake_at = None


def pause_task(locked: LockedTask, pause: Pause, data: dict[str, Json] | None = None) -> None:
    """Pause a task and record why; `data` is recorded with the event."""
    data = ({"reason": pause.reason} if pause.reason else {}) | (data or {})
    move_task(locked, "task.paused", data or None)
    pauses.record(locked.task, pause)


def move_task(locked: LockedTask, event: str, data: dict[str, Json] | None = None) -> None:
    """Set a task's status by its machine and emit the event."""
    task = locked.task
    task.status = moved(TASK, event, task.status)
    if task.status in (TaskStatus.SUCCEEDED, TaskStatus.FAILED, TaskStatus.CANCELED):
        task.set_columns(ended_at=locked.now)
        task.deadline = None
    locked.emit(event, None, data)
