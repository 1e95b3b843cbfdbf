"""Groups: a step that became many, one row an item, made as the window reaches them.

A group's row waits while its items run. Its counters say how far they have come: `items_placed`
items have rows, `items_ended` have ended, `items_done` of them well. A held group has items to admit
when a place gets free: the window's one mechanism serves `max_parallel` and `concurrency` alike.
"""

import json

from agent.core.ids import new_id
from agent.core.state_machine import StepStatus
from agent.core.waits import Items
from agent.steps.types.outcome import Json, StepError
from agent.store.db import json_values
from agent.store.db.database import Connection
from agent.store.engine import reads
from agent.tasks.rules import inherited_calls
from agent.tasks.state import transitions
from agent.tasks.state.locked_task import LockedTask
from agent.tasks.state.rows import StepRow


def expand(locked: LockedTask, step: StepRow, items: list[Json]) -> None:
    """Turn a step whose items have been decided into a group."""
    step.parallel_count = len(items)
    step.also(items=json_values.encode(items, "items"))
    if not items:
        transitions.succeed(locked, step, None)
        return
    transitions.wait(locked, step, Items(len(items)), None, None)
    # The group itself does nothing any more: its place goes to its items.
    if step.placed:
        step.placed = 0
        locked.task.places_taken = locked.task.places_taken - 1
    transitions.hold(locked, step)


def admit(tx: Connection, locked: LockedTask, group: StepRow) -> bool:
    """Let as many items begin as both windows have room for; say whether any did."""
    assert group.parallel_count is not None
    fanout = locked.definition(group).fanout
    concurrency = fanout.concurrency if fanout is not None else None
    carried = locked.load_held_items(tx, group.index) if is_reopened(group) else []
    active = group.items_placed - group.items_ended - len(carried)
    room = len(carried) + group.parallel_count - group.items_placed
    if concurrency is not None:
        room = min(room, concurrency - active)
    if locked.graph.max_parallel is not None:
        room = min(room, locked.graph.max_parallel - locked.task.places_taken)
    for item in carried[: max(room, 0)]:
        transitions.release(locked, item)
    released = min(len(carried), max(room, 0))
    count = min(room - released, locked.admissions)
    if count > 0:
        _make_items(tx, locked, group, count)
        locked.admissions -= count
    left = len(carried) - released + group.parallel_count - group.items_placed
    if left == 0 or (concurrency is not None and active + released + count >= concurrency):
        transitions.let_go(locked, group)
        group.wake_at = None
    elif locked.admissions == 0:
        # This transaction has made all the rows it may: go on in the next turn.
        group.wake_at = locked.now
    return released + count > 0


def is_reopened(group: StepRow) -> bool:
    """Whether a group was carried over from another task: it was never claimed in this one.

    Its items that are to run again have rows already, held back until the window reaches them.
    """
    return group.claim_token == 0


def _make_items(tx: Connection, locked: LockedTask, group: StepRow, count: int) -> None:
    items = json.loads(group.extra.get("items") or reads.group_items(tx, group.id))
    definition = locked.definition(group)
    first = group.items_placed
    made = []
    for parallel_index in range(first, first + count):
        item = StepRow.new(
            new_id(),
            group.task_id,
            group.index,
            parallel_index=parallel_index,
            max_attempts=definition.retry.max_attempts,
            parallel_count=group.parallel_count,
        )
        item.also(item=json.dumps(items[parallel_index], ensure_ascii=False))
        made.append(locked.add(item))
        transitions.release(locked, item)
    inherited_calls.inherit_items(tx, locked, made)
    group.items_placed = first + count
    locked.task.steps_open = locked.task.steps_open + count


def count_item(tx: Connection, locked: LockedTask, item: StepRow) -> None:
    """Count an ended item off its group, which admits the next one or ends."""
    locked.load(tx, [(item.index, -1)])
    group = locked.steps[(item.index, -1)]
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
    """End a group whose items have all ended, or all those that will ever begin."""
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
    """Whether no further item of a group is to begin."""
    if group.items_failed > 0 and locked.graph.fail_fast:
        return True
    return locked.task.phase != "normal" and locked.definition(group).run_on == "success"


def error_text(error: StepError, attempt: int) -> str:
    """Write an error as it is stored."""
    return json.dumps(error.document(attempt), ensure_ascii=False)
