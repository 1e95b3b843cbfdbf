"""Triggers: one task for each instant and item, one fate for each, and rows that fit together.

Whether every instant of a schedule has a fate needs its calendar: `agent.triggers.schedules.fate_check` has
that, and callers of the checker pass it in.
"""

from collections.abc import Iterator
from typing import Final

from agent.core.state_machine import TriggerStatus
from agent.store.db.database import Connection
from agent.store.engine import trigger_rows
from agent.store.engine.trigger_rows import TriggerRow
from agent.store.read.audit import triggers as trigger_audit
from agent.tasks.checker.violation import Violation

_SCHEDULE: Final = "schedule"


def check_triggers(connection: Connection) -> Iterator[Violation]:
    """Check every trigger, its firings and its tasks."""
    for trigger, key, task_id in trigger_audit.missing_tasks(connection):
        yield Violation(f"{trigger} has started {key} as task {task_id}, which does not exist")
    for trigger, key, task_id, other in trigger_audit.foreign_tasks(connection):
        yield Violation(f"{trigger} has started {key}, and its task names {other}", task_id)
    for task_id, trigger in trigger_audit.tasks_without_firing(connection):
        yield Violation(f"{trigger} has started it, and no firing names it", task_id)
    for task_id, count in trigger_audit.shared_tasks(connection):
        yield Violation(f"{count} firings name it, and they are no batch", task_id)
    for trigger, key in trigger_audit.bad_ranges(connection):
        yield Violation(f"{trigger}: {key} is neither one firing nor a range of several")
    yield from _check_queue(connection)
    for row in trigger_rows.all_rows(connection):
        for sentence in _check_row(row):
            yield Violation(f"{row.id} {sentence}")


def _check_queue(connection: Connection) -> Iterator[Violation]:
    for trigger, status, run_id, count, inputs, unfinished in trigger_audit.queued(connection):
        if status == TriggerStatus.REMOVED:
            yield Violation(f"{trigger} was removed, and {count} of its firings are queued")
        if run_id is None or inputs != 1 or unfinished:
            yield Violation(f"{trigger} has a queued run {run_id} that cannot start as it is")


def _check_row(row: TriggerRow) -> Iterator[str]:
    if (row.owner is None) != (row.owned_until is None):
        yield f"is polled by {row.owner} until {row.owned_until}: both are set or neither is"
    match row.status:
        case TriggerStatus.ACTIVE if row.kind == _SCHEDULE:
            yield from _check_times(row)
        case TriggerStatus.ACTIVE:
            if row.next_at is None:
                yield "is active and is never polled again"
        case TriggerStatus.PAUSED:
            yield from _check_pause(row)
        case _ if row.next_at is not None:
            yield f"is {row.status}, and due at {row.next_at}"
    if row.status == TriggerStatus.BROKEN and row.problem is None:
        yield "is broken without a problem"
    if (row.status == TriggerStatus.REMOVED) != (row.removed_at is not None):
        yield f"is {row.status}, and its time of removal is {row.removed_at}"


def _check_pause(row: TriggerRow) -> Iterator[str]:
    if row.next_at != row.paused_until:
        yield f"is paused until {row.paused_until}, and due at {row.next_at}"
    if row.pause_reason is None:
        yield "is paused without a reason"


def _check_times(row: TriggerRow) -> Iterator[str]:
    if (row.next_at is None) != (row.next_nominal is None):
        yield f"is due at {row.next_at} for the instant {row.next_nominal}"
    elif row.next_at is not None and row.next_nominal is not None:
        if row.next_at < row.next_nominal:
            yield f"is due at {row.next_at}, before its instant {row.next_nominal}"
        if row.last_nominal is not None and row.next_nominal <= row.last_nominal:
            yield (
                f"is next due for {row.next_nominal}, and every instant up to {row.last_nominal}"
                " has its fate"
            )
