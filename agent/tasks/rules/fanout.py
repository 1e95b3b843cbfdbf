"""Groups: a step that was expanded into items, each with a row of its own.

A group's row waits while its items run. Its counters: `items_placed` items have rows, `items_ended` of
them have ended, `items_done` of these ended well. Rows of items are created as the windows have room
for them (`max_parallel` of the task, `concurrency` of the group). A group is held back while it has
items to admit: `advance` then calls `admit`, as it releases held steps.
"""

import json

from agent.core.ids import new_id
from agent.core.plain_json import Json
from agent.core.state_machine import StepStatus
from agent.core.waits import Items
from agent.steps.types.outcome import StepError
from agent.store.db import json_values
from agent.store.db.database import Connection
from agent.store.engine import reads
from agent.tasks.state import transitions
from agent.tasks.state.locked_task import LockedTask
from agent.tasks.state.rows import NO_ITEM, StepRow


def expand(locked: LockedTask, step: StepRow, items: list[Json]) -> None:
    """Turn a step whose items are known into a group."""
    step.parallel_count = len(items)
    step.set_columns(items=json_values.encode(items, "items"))
    if not items:
        transitions.succeed(locked, step, None)
        return
    transitions.wait(locked, step, Items(len(items)), None, None)
    # From now on only the items run: the group's slot in the window is free for them.
    transitions.leave_windows(locked, step)
    transitions.hold(locked, step)


def admit(tx: Connection, locked: LockedTask, group: StepRow) -> bool:
    """Start as many items as both windows have room for; return whether any started."""
    assert group.parallel_count is not None
    held = locked.load_held_items(tx, group.index) if is_reopened(group) else []
    active = group.items_placed - group.items_ended - len(held)
    fanout = locked.definition(group).fanout
    concurrency = fanout.concurrency if fanout is not None else None
    room = len(held) + group.parallel_count - group.items_placed
    if concurrency is not None:
        room = min(room, concurrency - active)
    if locked.graph.max_parallel is not None:
        room = min(room, locked.graph.max_parallel - locked.task.places_taken)
    room = max(room, 0)
    released = held[:room]
    for item in released:
        transitions.release(locked, item)
    created = min(room - len(released), locked.admissions)
    if created > 0:
        _create_items(tx, locked, group, created)
        locked.admissions -= created
    started = len(released) + created
    has_more = len(released) < len(held) or group.items_placed < group.parallel_count
    is_full = concurrency is not None and active + started >= concurrency
    if not has_more or is_full:
        transitions.let_go(locked, group)
        group.wake_at = None
    elif locked.admissions == 0:
        # This transaction has created as many rows as it may; the next one goes on.
        group.wake_at = locked.now
    return started > 0


def is_reopened(group: StepRow) -> bool:
    """Whether a group was carried over from another task: it was never claimed in this one.

    Its items that run again have rows already and are held back (`carry_over`).
    """
    return group.claim_token == 0


def _create_items(tx: Connection, locked: LockedTask, group: StepRow, count: int) -> None:
    """Create and release the next items of a group."""
    values = json.loads(group.extra.get("items") or reads.group_items(tx, group.id))
    max_attempts = locked.definition(group).retry.max_attempts
    first = group.items_placed
    items = []
    for parallel_index in range(first, first + count):
        item = StepRow.new(
            new_id(),
            group.task_id,
            group.index,
            parallel_index=parallel_index,
            max_attempts=max_attempts,
            parallel_count=group.parallel_count,
        )
        item.set_columns(item=json.dumps(values[parallel_index], ensure_ascii=False))
        items.append(locked.add(item))
        transitions.release(locked, item)
    from agent.tasks.rules.retries import inherited_calls

    inherited_calls.inherit_items(tx, locked, items)
    group.items_placed = first + count
    locked.task.steps_open = locked.task.steps_open + count


def count_item(tx: Connection, locked: LockedTask, item: StepRow) -> None:
    """Count an ended item in its group; then the group ends, or is held to admit further items."""
    locked.load(tx, [(item.index, NO_ITEM)])
    group = locked.steps[(item.index, NO_ITEM)]
    group.items_ended = group.items_ended + 1
    if item.status == StepStatus.FAILED:
        group.items_failed = group.items_failed + 1
    elif not transitions.is_skipped_by_failure(item):
        group.items_done = group.items_done + 1
    if close_if_over(locked, group):
        return
    if is_reopened(group) or (
        not _is_stopping(locked, group) and group.items_placed < (group.parallel_count or 0)
    ):
        transitions.hold(locked, group)


def close_if_over(locked: LockedTask, group: StepRow) -> bool:
    """End a group if all its items have ended and no further one will start; return whether it did."""
    if group.status != StepStatus.WAITING or group.items_ended < group.items_placed:
        return False
    if group.items_placed < (group.parallel_count or 0) and not _is_stopping(locked, group):
        return False
    if group.items_failed > 0:
        count = f"{group.items_failed} of {group.parallel_count} items failed"
        transitions.fail(locked, group, StepError("items_failed", "code", count))
    elif group.items_done == group.parallel_count:
        transitions.succeed(locked, group, None)
    else:
        transitions.skip(locked, group, "fail_fast")
    return True


def _is_stopping(locked: LockedTask, group: StepRow) -> bool:
    """Whether a group starts no further items."""
    if group.items_failed > 0 and locked.graph.fail_fast:
        return True
    return locked.task.phase != "normal" and locked.definition(group).run_on == "success"
