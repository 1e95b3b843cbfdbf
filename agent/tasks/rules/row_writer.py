"""Write everything that a transaction changed: one statement per table and set of columns.

Every transaction of the engine ends here. Statements are deferred: on PostgreSQL they travel together.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from agent.core.lazy_module import lazy
from agent.core.state_machine import StepStatus
from agent.store.db.database import Connection
from agent.store.engine import approval_rows, writes
from agent.store.engine.writes import Changes
from agent.tasks.rules import activity
from agent.tasks.state.locked_task import LockedTask
from agent.tasks.state.rows import STEP_COLUMNS, TASK_COLUMNS, StepRow, TaskRow

if TYPE_CHECKING:
    from agent.store.engine import snapshot_rows, work_rows
    from agent.tasks.rules import call_ledger, conversations
    from agent.tasks.rules.retries import inherited_calls
else:
    snapshot_rows = lazy("agent.store.engine.snapshot_rows")
    work_rows = lazy("agent.store.engine.work_rows")
    call_ledger = lazy("agent.tasks.rules.call_ledger")
    conversations = lazy("agent.tasks.rules.conversations")
    inherited_calls = lazy("agent.tasks.rules.retries.inherited_calls")

# Most new steps need few columns; the database fills in the others. Fewer columns cost less.
_NEW_STEP: Final = (
    "id",
    "task_id",
    "index",
    "status",
    "max_attempts",
    "deps_remaining",
    "wake_at",
    "held",
    "placed",
    "owner",
    "claim_token",
    "claim_turn",
    "started_at",
)
_NEW_STEP_VALUES: Final = attrgetter(*_NEW_STEP)
_NEW_STEP_COLUMNS: Final = (*_NEW_STEP, "name", "kind")
_NEW_ITEM: Final = (*_NEW_STEP, "parallel_index", "parallel_count")
_NEW_ITEM_VALUES: Final = attrgetter(*_NEW_ITEM)
_NEW_ITEM_COLUMNS: Final = (*_NEW_ITEM, "name", "kind", "item")


def write(tx: Connection, locked_tasks: Collection[LockedTask], now: int) -> None:
    """Write the tasks, their steps, events, intended calls and approvals."""
    for locked in locked_tasks:
        if locked.graph.has_workers:
            activity.note_change(tx, locked)
    _insert_tasks(tx, locked_tasks)
    _insert_steps(tx, locked_tasks)
    for locked in locked_tasks:
        if locked.is_new and locked.retries is not None:
            inherited_calls.inherit_calls(tx, locked.retries, locked)
    _update_rows(tx, locked_tasks, now)
    events = [event for locked in locked_tasks for event in locked.events]
    if events:
        writes.insert_events(tx, events)
    if any(locked.intents for locked in locked_tasks):
        call_ledger.insert_intents(tx, locked_tasks)
    questions = [row for locked in locked_tasks for row in locked.questions]
    if questions:
        approval_rows.insert(tx, questions)
    # After the insertion: one transaction may ask a question and withdraw it.
    withdrawals = [approval for locked in locked_tasks for approval in locked.withdrawals]
    if withdrawals:
        approval_rows.withdraw(tx, withdrawals, now)
    if any(locked.exchanges for locked in locked_tasks):
        conversations.append(tx, locked_tasks, now)
    _write_work(tx, locked_tasks, now)


def _write_work(tx: Connection, locked_tasks: Iterable[LockedTask], now: int) -> None:
    """Write the work of external workers, and snapshots; most transactions have none."""
    new, changed, withdrawn, snapshots = [], [], [], []
    for locked in locked_tasks:
        new += locked.new_work
        if locked.changed_work:
            changed += [locked.work[work_id] for work_id in sorted(locked.changed_work)]
        withdrawn += locked.withdrawn_work
        snapshots += locked.snapshots
    if new:
        work_rows.insert(tx, new)
    if changed:
        work_rows.update(tx, changed)
    # After the others: one transaction may queue work and withdraw it.
    if withdrawn:
        work_rows.withdraw(tx, withdrawn, now)
    if snapshots:
        snapshot_rows.insert(tx, snapshots)


def _insert_tasks(tx: Connection, locked_tasks: Iterable[LockedTask]) -> None:
    by_columns: defaultdict[tuple[str, ...], list[list[Any]]] = defaultdict(list)
    for locked in locked_tasks:
        if locked.is_new:
            task = locked.task
            task.next_wake_time = _next_wake_time(locked)
            columns = (*TASK_COLUMNS, *task.extra)
            by_columns[columns].append([*TaskRow.values(task), *task.extra.values()])
            locked.is_written = True
    for columns, rows in by_columns.items():
        writes.insert_tasks(tx, rows, columns)


def _insert_steps(tx: Connection, locked_tasks: Iterable[LockedTask]) -> None:
    by_columns: defaultdict[tuple[str, ...], list[list[Any]]] = defaultdict(list)
    for locked in locked_tasks:
        for step in locked.steps.values():
            if not step.is_new:
                continue
            definition = locked.definition(step)
            name, kind = definition.name, definition.kind
            if not step.extra:
                by_columns[_NEW_STEP_COLUMNS].append([*_NEW_STEP_VALUES(step), name, kind])
            elif _is_new_item(step):
                values = [*_NEW_ITEM_VALUES(step), name, kind, step.extra["item"]]
                by_columns[_NEW_ITEM_COLUMNS].append(values)
            else:
                columns = (*STEP_COLUMNS, "name", "kind", *step.extra)
                values = [*StepRow.values(step), name, kind, *step.extra.values()]
                by_columns[columns].append(values)
    for columns, rows in by_columns.items():
        writes.insert_steps(tx, rows, columns)


def _is_new_item(step: StepRow) -> bool:
    """Whether a step is an item of a group that has nothing but its item yet."""
    has_only_item = len(step.extra) == 1 and "item" in step.extra
    return has_only_item and step.is_item and step.status != StepStatus.SUCCEEDED


def _update_rows(tx: Connection, locked_tasks: Iterable[LockedTask], now: int) -> None:
    """Update the changed columns of steps and tasks.

    A task's next wake time is the earliest of its steps and its deadline. It is computed here if
    all open steps are in memory; otherwise the database computes it in the UPDATE.
    """
    steps: list[tuple[str, Changes]] = []
    complete: list[tuple[str, Changes]] = []
    partial: list[tuple[str, int | None, Changes]] = []
    for locked in locked_tasks:
        if locked.is_new:
            continue
        task = locked.task
        changed_steps = [
            (step.id, changes)
            for step in locked.steps.values()
            if not step.is_new and (changes := step.changes()) is not None
        ]
        steps += changed_steps
        if locked.is_complete:
            task.next_wake_time = _next_wake_time(locked)
        changes = task.changes()
        if changes is not None and locked.is_complete:
            complete.append((task.id, changes))
        elif (
            changes is not None
            # Other workers notice a changed step by the version of its task's row.
            or changed_steps
            or (locked.is_touched and not locked.is_complete)
        ):
            partial.append((task.id, task.deadline, changes or ((), [])))
        else:
            continue
        locked.is_written = True
    if steps:
        writes.update_steps(tx, steps)
    if complete:
        writes.update_whole_tasks(tx, complete)
    if partial:
        writes.update_tasks(tx, now, partial)


def _next_wake_time(locked: LockedTask) -> int | None:
    """Return when a task whose open steps are all in memory is due next."""
    wakes = [step.wake_at for step in locked.steps.values() if step.wake_at is not None]
    if locked.unused_steps:
        wakes += [step.wake_at for step in locked.unused_steps.values() if step.wake_at is not None]
    if wakes:
        # Never in the past: a task that was served goes behind those that wait.
        wakes = [max(min(wakes), locked.now)]
    if locked.task.deadline is not None:
        wakes.append(locked.task.deadline)
    return min(wakes, default=None)
