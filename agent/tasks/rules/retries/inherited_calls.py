"""The calls that a retry inherits from the tasks before it.

A call on record as done is not repeated, and an unknown call stays unknown. Such calls are copied
into the new task as calls of attempt 0, which every attempt of their step reads. Failures are not
inherited, not even final ones: a person who retries a task wants them tried again.
"""

from collections.abc import Iterable

from agent.core.ids import idempotency_key, new_id
from agent.core.state_machine import CallStatus, StepStatus
from agent.store.db.database import Connection
from agent.store.engine import call_rows, lineage
from agent.store.engine.lineage import PastCall
from agent.tasks.state.locked_task import LockedTask
from agent.tasks.state.rows import StepRow


def inherit_calls(tx: Connection, old: LockedTask, new: LockedTask) -> None:
    """Give the steps that run again the calls of the old task's steps."""
    places = [new.graph.index_of.get(step.name) for step in old.graph.steps]
    calls = [
        call._replace(step_index=place)
        for call in lineage.calls_of(tx, old.task.id)
        if (place := places[call.step_index]) is not None
    ]
    _copy(tx, new, new.steps.values(), calls)


def inherit_items(tx: Connection, locked: LockedTask, items: Iterable[StepRow]) -> None:
    """Give new items of a group the calls of the items at their addresses in earlier tasks.

    The group is expanded again in this task, so its items had no rows when the retry began. Nor need
    the task just before have come so far: all tasks of the line are read.
    """
    if locked.task.origin_id == locked.task.id:
        return
    items = list(items)
    first, last = items[0].parallel_index, items[-1].parallel_index
    definition, task_id = locked.definition(items[0]), locked.task.id
    calls = [
        # In an earlier version the group may have had another index.
        call._replace(step_index=items[0].index)
        for call in lineage.calls_of_items(tx, task_id, definition.name, first, last)
    ]
    heirs = _copy(tx, locked, items, calls)
    reads: dict[int, str] = {}
    if heirs and definition.reads_state:
        reads = lineage.state_reads_of_items(tx, task_id, definition.name, first, last)
    claims: dict[int, int] = {}
    if heirs and definition.reads_now:
        claims = lineage.first_claims_of_items(tx, task_id, definition.name, first, last)
    for step in heirs:
        step.inherit_history()
        if step.parallel_index in reads:
            step.set_columns(state_read=reads[step.parallel_index])
        if step.parallel_index in claims:
            step.set_columns(first_claimed_at=claims[step.parallel_index])


def _copy(
    tx: Connection, new: LockedTask, steps: Iterable[StepRow], calls: Iterable[PastCall]
) -> list[StepRow]:
    """Copy the binding calls to the steps at their addresses; return the steps that have any."""
    by_address = {(step.index, step.parallel_index): step for step in steps}
    by_status: dict[str, list[list[object]]] = {}
    heirs: dict[str, StepRow] = {}
    for call in _binding(calls):
        step = by_address.get((call.step_index, call.parallel_index))
        if step is None or step.status == StepStatus.SUCCEEDED:
            continue
        heirs[step.id] = step
        key = idempotency_key(new.task.id, step.id, 0, call.action, call.request_hash)
        by_status.setdefault(call.status, []).append(
            [
                new_id(),
                new.task.id,
                step.id,
                call.number,
                0,
                call.action,
                key,
                call.remote_key,
                call.request_hash,
                call.request,
                call.response,
                call.error,
                call.on_unknown,
                call.send_by,
                call.expires_at,
                new.now,
            ]
        )
    for status, rows in by_status.items():
        call_rows.insert_calls(tx, rows, status)
    return list(heirs.values())


def _binding(calls: Iterable[PastCall]) -> list[PastCall]:
    """Return, for each number at each address, the call that binds later attempts.

    That is the last success, or else the last unknown, even if a later attempt failed. Calls come in
    the order of tasks, oldest first. Only the latest task with such calls counts: it had inherited
    those of the tasks before it.
    """
    by_number: dict[tuple[int, int, int], list[PastCall]] = {}
    for call in calls:
        same_number = by_number.setdefault((call.step_index, call.parallel_index, call.number), [])
        if same_number and same_number[-1].task_id != call.task_id:
            same_number.clear()
        same_number.append(call)
    binding = []
    for same_number in by_number.values():
        for status in (CallStatus.SUCCEEDED, CallStatus.UNKNOWN):
            if matching := [call for call in same_number if call.status == status]:
                binding.append(matching[-1])
                break
    return binding
