"""The one ending of every transaction on a task: release what is ready, derive the status.

`advance` is called once for each unit, after its rows were changed. Nothing else releases a step or
ends a task. The task's `next_wake_time` is derived from its steps when the unit is written.
"""

from agent.core.state_machine import STEP_ENDED, TASK_ENDED, StepStatus, TaskStatus
from agent.steps.types.outcome import StepError
from agent.store.db.database import Connection
from agent.tasks.rules import budgets, fanout
from agent.tasks.state import transitions
from agent.tasks.state.locked_task import Unit
from agent.tasks.state.rows import StepRow


def advance(tx: Connection, unit: Unit) -> None:
    """Carry every consequence of what ended, until nothing more follows."""
    task = unit.task
    if task.status in TASK_ENDED:
        return
    if task.status == TaskStatus.PENDING:
        return
    if (
        task.deadline is not None
        and task.deadline <= unit.now
        and task.status == TaskStatus.RUNNING
    ):
        miss_deadline(tx, unit)
    while True:
        while unit.ended:
            _tell_dependents(tx, unit, unit.ended.pop())
        if task.phase == "failing" and task.steps_running == 0:
            # What was in flight has answered: now the clean-up steps may run, in their own time.
            task.phase = "cleanup"
            task.deadline = None
        _fill_window(tx, unit)
        if not unit.ended:
            break
    if task.steps_open == 0 and task.status == TaskStatus.RUNNING:
        has_failed = task.steps_failed > 0 or task.phase != "normal"
        transitions.move_task(unit, "task.failed" if has_failed else "task.succeeded")


def begin_failing(tx: Connection, unit: Unit, reason: str) -> None:
    """Skip what has not started, stop what is in flight; clean-up follows when it has answered."""
    unit.task.phase = "failing"
    for step in unit.load_open(tx):
        if step.status in STEP_ENDED or is_cleanup(unit, step):
            continue
        if step.status == StepStatus.RUNNING:
            unit.stops.append(step)
        elif step.is_group:
            transitions.let_go(unit, step)
            step.wake_at = None
            fanout.close_if_over(unit, step)
        else:
            transitions.skip(unit, step, reason)


def miss_deadline(tx: Connection, unit: Unit) -> None:
    """Fail a task whose wall-clock time is over; its clean-up steps still run."""
    task = unit.task
    if task.phase == "normal" and budgets.pauses_when_time_is_over(unit.graph):
        # The deadline stays: resumed without more time, the task is paused again.
        unit.tell("budget.exhausted", None, {"reason": "the task's time is over"})
        how = f"`agent budget {task.id[-8:]} --time D` raises it"
        budgets.pause(unit, f"the task's time is over; {how}")
        return
    task.deadline = None
    if task.phase != "normal":
        return
    error = StepError("deadline_exceeded", "timeout", "the task's time is over")
    if task.steps_failed == 0:
        task.also(error=fanout.error_text(error, 0))
    begin_failing(tx, unit, "deadline")


def is_cleanup(unit: Unit, step: StepRow) -> bool:
    """Whether a step is there for failures: `run_on: failure` or `always`."""
    return unit.definition(step).run_on != "success"


def _tell_dependents(tx: Connection, unit: Unit, step: StepRow) -> None:
    """Count an ended step off where it is waited for."""
    is_failed = step.status == StepStatus.FAILED
    if (
        is_failed
        and unit.graph.fail_fast
        and unit.task.phase == "normal"
        and not is_cleanup(unit, step)
    ):
        # Before its dependents are told: clean-up waits until what is in flight has answered.
        begin_failing(tx, unit, "fail_fast")
    if step.is_item:
        fanout.count_item(tx, unit, step)
        return
    by_failure = is_failed or transitions.is_skipped_by_failure(step)
    dependents = unit.graph.dependents[step.index]
    unit.load(tx, [(index, -1) for index in dependents])
    for index in dependents:
        dependent = unit.steps[(index, -1)]
        dependent.deps_remaining = dependent.deps_remaining - 1
        if by_failure:
            dependent.deps_failed = dependent.deps_failed + 1
        if dependent.deps_remaining == 0 and dependent.status == StepStatus.PENDING:
            make_ready(unit, dependent)


def make_ready(unit: Unit, step: StepRow) -> None:
    """Release a step whose dependencies have ended, hold it back, or skip it."""
    run_on = unit.definition(step).run_on
    if run_on == "success":
        if step.deps_failed > 0:
            transitions.skip(unit, step, "upstream_failed")
            return
        if unit.task.phase != "normal":
            transitions.skip(unit, step, "fail_fast")
            return
    elif run_on == "failure" and step.deps_failed == 0:
        transitions.skip(unit, step, "run_on")
        return
    if has_place(unit) and unit.task.phase != "failing":
        transitions.release(unit, step)
    else:
        transitions.hold(unit, step)


def has_place(unit: Unit) -> bool:
    """Whether the task's window has room for one step more."""
    limit = unit.graph.max_parallel
    return limit is None or unit.task.places_taken < limit


def _fill_window(tx: Connection, unit: Unit) -> None:
    """Let held steps go, in order, while the window has places."""
    task = unit.task
    if task.phase == "failing":
        return
    while task.steps_held > 0 and has_place(unit):
        limit = unit.graph.max_parallel
        places = task.steps_held if limit is None else limit - task.places_taken
        moved = False
        for step in unit.load_held(tx, min(places, unit.admissions + 1)):
            if not has_place(unit):
                break
            if not step.is_group:
                transitions.release(unit, step)
                moved = True
            elif unit.admissions > 0:
                moved = fanout.admit(tx, unit, step) or moved
        if not moved:
            break
