"""How every transaction on a task ends: release the steps that became ready, derive the status.

`advance` is called once for each locked task, after its rows were changed. Every step that became ready is
released here, except items that `fanout` admits later, and every task ends here, except by a cancel command.
`next_wake_time` is derived from the steps when the task is written.
"""

import json

from agent.core.state_machine import STEP_ENDED, TASK_ENDED, StepStatus, TaskStatus
from agent.steps.types.outcome import StepError
from agent.store.db.database import Connection
from agent.tasks.rules import budgets, fanout
from agent.tasks.state import transitions
from agent.tasks.state.locked_task import LockedTask
from agent.tasks.state.rows import NO_ITEM, StepRow


def advance(tx: Connection, locked: LockedTask) -> None:
    """Apply all consequences of the steps that ended, until nothing more follows."""
    task = locked.task
    if task.status in TASK_ENDED:
        return
    if task.status == TaskStatus.PENDING:
        return
    if (
        task.deadline is not None
        and task.deadline <= locked.now
        and task.status == TaskStatus.RUNNING
    ):
        miss_deadline(tx, locked)
    while True:
        while locked.ended:
            _update_dependents(tx, locked, locked.ended.pop())
        if task.phase == "failing" and task.steps_running == 0:
            # No attempt is in flight any more: the clean-up steps may run, without the deadline.
            task.phase = "cleanup"
            task.deadline = None
        _fill_window(tx, locked)
        if not locked.ended:
            break
    if task.steps_open == 0 and task.status == TaskStatus.RUNNING:
        has_failed = task.steps_failed > 0 or task.phase != "normal"
        transitions.move_task(locked, "task.failed" if has_failed else "task.succeeded")


def begin_failing(tx: Connection, locked: LockedTask, reason: str) -> None:
    """Skip what has not started and stop attempts in flight; clean-up follows when those have ended."""
    locked.task.phase = "failing"
    for step in locked.load_open(tx):
        if step.status in STEP_ENDED or is_cleanup(locked, step):
            continue
        if step.status == StepStatus.RUNNING:
            locked.stops.append(step)
        elif step.is_group:
            transitions.let_go(locked, step)
            step.wake_at = None
            fanout.close_if_over(locked, step)
        else:
            transitions.skip(locked, step, reason)


def end_reason(locked: LockedTask) -> str:
    """Return why a task that is failing, or has failed, starts nothing more: without a failed step, its deadline."""
    return "fail_fast" if locked.task.steps_failed else "deadline"


def miss_deadline(tx: Connection, locked: LockedTask) -> None:
    """Fail or pause a task whose deadline has passed; its clean-up steps still run."""
    task = locked.task
    if task.phase == "normal" and budgets.pauses_when_time_is_over(locked.graph):
        # The deadline stays: resumed without more time, the task is paused again.
        locked.emit("budget.exhausted", None, {"reason": "the task's time is over"})
        command = f"budget {task.id[-8:]} --time D"
        reason = f"the task's time is over; `agent {command}` raises it"
        budgets.pause(locked, budgets.budget_pause(reason, command))
        return
    task.deadline = None
    if task.phase != "normal":
        return
    error = StepError("deadline_exceeded", "timeout", "the task's time is over")
    if task.steps_failed == 0:
        task.set_columns(error=json.dumps(error.document(0), ensure_ascii=False))
    begin_failing(tx, locked, "deadline")


def is_cleanup(locked: LockedTask, step: StepRow) -> bool:
    """Whether a step also runs after failures: `run_on: failure` or `always`."""
    return locked.definition(step).run_on != "success"


def _update_dependents(tx: Connection, locked: LockedTask, step: StepRow) -> None:
    """Count an ended step in its dependents, and release those that became ready."""
    is_failed = step.status == StepStatus.FAILED
    if (
        is_failed
        and locked.graph.fail_fast
        and locked.task.phase == "normal"
        and not is_cleanup(locked, step)
    ):
        # Before its dependents are updated: clean-up waits until no attempt is in flight.
        begin_failing(tx, locked, "fail_fast")
    if step.is_item:
        fanout.count_item(tx, locked, step)
        return
    by_failure = is_failed or transitions.is_skipped_by_failure(step)
    dependents = locked.graph.dependents[step.index]
    locked.load(tx, [(index, NO_ITEM) for index in dependents])
    for index in dependents:
        dependent = locked.steps[(index, NO_ITEM)]
        dependent.deps_remaining = dependent.deps_remaining - 1
        if by_failure:
            dependent.deps_failed = dependent.deps_failed + 1
        if dependent.deps_remaining == 0 and dependent.status == StepStatus.PENDING:
            make_ready(locked, dependent)


def make_ready(locked: LockedTask, step: StepRow) -> None:
    """Release a step whose dependencies have ended, hold it, or skip it."""
    run_on = locked.definition(step).run_on
    if run_on == "success":
        if step.deps_failed > 0:
            transitions.skip(locked, step, "upstream_failed")
            return
        if locked.task.phase != "normal":
            transitions.skip(locked, step, end_reason(locked))
            return
    elif run_on == "failure" and step.deps_failed == 0:
        transitions.skip(locked, step, "run_on")
        return
    if has_window_slot(locked) and locked.task.phase != "failing":
        transitions.release(locked, step)
    else:
        transitions.hold(locked, step)


def has_window_slot(locked: LockedTask) -> bool:
    """Whether the task's window has a free slot."""
    limit = locked.graph.max_parallel
    return limit is None or locked.task.places_taken < limit


def _fill_window(tx: Connection, locked: LockedTask) -> None:
    """Release held steps, in order, while the window has free slots."""
    task = locked.task
    if task.phase == "failing":
        return
    while task.steps_held > 0 and has_window_slot(locked):
        limit = locked.graph.max_parallel
        free_slots = task.steps_held if limit is None else limit - task.places_taken
        moved = False
        for step in locked.load_held(tx, min(free_slots, locked.admissions + 1)):
            if not has_window_slot(locked):
                break
            if not step.is_group:
                transitions.release(locked, step)
                moved = True
            elif locked.admissions > 0:
                moved = fanout.admit(tx, locked, step) or moved
        if not moved:
            break
