"""A task that has not ended goes on: each open step is due, held back, or waits on something named."""

from collections.abc import Iterator
from typing import Final

from agent.core import waits
from agent.core.clock import SECOND
from agent.core.state_machine import STEP_ENDED, TASK_ENDED, StepStatus, TaskStatus
from agent.store.read.audit.rows import AuditRows, StepFacts
from agent.tasks.checker.violation import Finding

_CLOCK_DIFFERENCE_US: Final = 5 * SECOND
"""How far the clocks of a worker and of the checker may be apart."""


def check_open(task: AuditRows, now: int) -> Iterator[Finding]:
    """Check the steps and the wake time of a task that has not ended."""
    row = task.task
    if row.status in TASK_ENDED:
        return
    if row.ended_at is not None:
        yield Finding(f"it is {row.status} and has an end time")
    for step in task.steps:
        for sentence in _check_step(step, row.status):
            yield Finding(f"step {step.title} {sentence}", step.title)
    if row.status == TaskStatus.RUNNING:
        if row.steps_open == 0:
            yield Finding("it is running and all its steps have ended")
        yield from _check_wake_time(task, now)


def _check_wake_time(task: AuditRows, now: int) -> Iterator[Finding]:
    """Check that a running task is woken when its first step is due, or its deadline is over."""
    row = task.task
    wakes = [step.wake_at for step in task.steps if step.wake_at is not None]
    if row.deadline is not None:
        wakes.append(row.deadline)
    least = min(wakes, default=None)
    if row.next_wake_time is None:
        if least is not None:
            yield Finding(f"nothing wakes it, and something is due at {least}")
        elif not any(_needs_outsider(step) for step in task.steps):
            yield Finding("it is running, nothing wakes it, and it waits on nothing named")
    elif least is None or row.next_wake_time < least:
        yield Finding(f"it is woken at {row.next_wake_time}, and nothing is due before {least}")
    elif row.next_wake_time > max(least, now + _CLOCK_DIFFERENCE_US):
        # The engine writes no wake time in the past, so one that has passed may be later than its
        # step's.
        yield Finding(f"it is woken at {row.next_wake_time}, later than what is due at {least}")


def _needs_outsider(step: StepFacts) -> bool:
    return step.status == StepStatus.WAITING and isinstance(step.wait, waits.NEEDS_OUTSIDER)


def _check_step(step: StepFacts, task_status: str) -> Iterator[str]:
    if step.status in STEP_ENDED:
        if step.wake_at is not None or step.held or step.placed:
            yield f"is {step.status} and still due, held back or in the window"
        return
    if step.held and step.status != StepStatus.PENDING and not step.is_group:
        yield f"is {step.status} and held back"
    match step.status:
        case StepStatus.RUNNING:
            if step.wake_at is None or not step.placed:
                yield "is running without a slot in the window or a wake time"
        case StepStatus.PAUSED:
            if task_status == TaskStatus.RUNNING:
                yield "is paused in a running task"
        case StepStatus.PENDING:
            yield from _check_pending(step, task_status)
        case StepStatus.WAITING:
            yield from _check_waiting(step)


def _check_pending(step: StepFacts, task_status: str) -> Iterator[str]:
    is_ready = step.deps_remaining == 0 and task_status != TaskStatus.PENDING
    if is_ready and step.wake_at is None and not step.held:
        yield "is ready, and neither due nor held back"
    if step.wake_at is not None and (step.held or not is_ready or not step.placed):
        yield "is due and could not be claimed"


def _check_waiting(step: StepFacts) -> Iterator[str]:
    on = step.wait
    if on is None:
        yield "waits on nothing named"
    elif step.is_group:
        has_open_items = step.items_placed > step.items_ended
        if not has_open_items and not step.held and step.wake_at is None:
            yield "waits for items, and none is open or to come"
    elif step.wake_at is None and not isinstance(on, waits.NEEDS_OUTSIDER):
        yield f"waits on {waits.KEYS[type(on)]} and nothing wakes it"
