"""The calls that a retry takes over from the tasks before it.

What is on record as done is not repeated, and what is unknown is not forgotten: such calls stand in
the new task as those of attempt 0, which every later attempt of their steps finds. Failures are not
inherited, final ones neither: who retries a task wants them tried again.
"""

from collections.abc import Iterable
from typing import Any

from agent.core.ids import idempotency_key, new_id
from agent.core.state_machine import CallStatus, StepStatus
from agent.store.db.database import Connection
from agent.store.engine import call_rows
from agent.tasks.state.locked_task import LockedTask
from agent.tasks.state.rows import StepRow


def inherit_calls(tx: Connection, old: LockedTask, new: LockedTask) -> None:
    """Give the steps that run again what the old task's have called."""
    _copy(tx, new, new.steps.values(), call_rows.calls_of_task(tx, old.task.id))


def inherit_items(tx: Connection, locked: LockedTask, items: Iterable[StepRow]) -> None:
    """Give the items of a group that is decided anew what those in their places have called.

    They have no rows yet when the retry begins; and the task before may never have come so far.
    """
    if locked.task.origin_id == locked.task.id:
        return
    items = list(items)
    numbers = items[0].parallel_index, items[-1].parallel_index
    rows = call_rows.calls_of_earlier_items(tx, locked.task.id, items[0].index, numbers)
    for step in _copy(tx, locked, items, rows):
        # As one that was claimed before: its calls are read.
        step.claim_token = 1


def _copy(
    tx: Connection, new: LockedTask, steps: Iterable[StepRow], found: Iterable[tuple[Any, ...]]
) -> list[StepRow]:
    """Copy the call at each place that was done, or may have been."""
    by_place = {(step.index, step.parallel_index): step for step in steps}
    by_status: dict[str, list[list[Any]]] = {}
    heirs: dict[str, StepRow] = {}
    for index, parallel_index, number, _, action, remote, digest, *rest, status in _binding(found):
        step = by_place.get((index, parallel_index))
        if step is None or step.status == StepStatus.SUCCEEDED:
            continue
        heirs[step.id] = step
        request, response, error, on_unknown, send_by, expires_at = rest
        key = idempotency_key(new.task.id, step.id, 0, action, digest)
        by_status.setdefault(status, []).append(
            [
                *(new_id(), new.task.id, step.id, number, 0, action, key, remote, digest),
                *(request, response, error, on_unknown, send_by, expires_at, new.now),
            ]
        )
    for status, rows in by_status.items():
        call_rows.insert_calls(tx, rows, status)
    return list(heirs.values())


def _binding(found: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return of the calls with one number at one place the one that binds whoever goes on from them.

    That is the last success, or else the last unknown, also where a later attempt has failed. Only
    the latest task that has such calls counts: it had inherited those of the tasks before it.
    """
    by_call: dict[tuple[int, int, int], list[tuple[Any, ...]]] = {}
    for row in found:
        calls = by_call.setdefault((row[0], row[1], row[2]), [])
        if calls and calls[-1][3] != row[3]:
            calls.clear()
        calls.append(row)
    binding = []
    for calls in by_call.values():
        for status in (CallStatus.SUCCEEDED, CallStatus.UNKNOWN):
            if ended := [row for row in calls if row[-1] == status]:
                binding.append(ended[-1])
                break
    return binding
