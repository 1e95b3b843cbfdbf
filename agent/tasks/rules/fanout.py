"""Groups: a step that became many, one row an item, made as the window reaches them.

A group's row waits while its items run. Its counters say how far they have come: `items_placed`
items have rows, `items_ended` have ended, `items_done` of them well. A held group has items to admit
when a place gets free: the window's one mechanism serves `max_parallel` and `concurrency` alike.
"""

import json

from agent.core.ids import new_id
from agent.core.state_machine import StepStatus
from agent.steps.types.outcome import Json, StepError
from agent.store.db import json_values
from agent.store.db.database import Connection
from agent.store.engine import reads
from agent.tasks.rules import inherited_calls
from agent.tasks.state import transitions
from agent.tasks.state.locked_task import Unit
from agent.tasks.state.rows import StepRow


def expand(unit: Unit, step: StepRow, items: list[Json]) -> None:
    """Turn a step whose items have been decided into a group."""
    step.parallel_count = len(items)
    step.also(items=json_values.encode(items, "items"))
    if not items:
        transitions.succeed(unit, step, None)
        return
    transitions.wait(unit, step, {"items": len(items)}, None, None)
    # The group itself does nothing any more: its place goes to its items.
    if step.placed:
        step.placed = 0
        unit.task.places_taken = unit.task.places_taken - 1
    transitions.hold(unit, step)


def admit(tx: Connection, unit: Unit, group: StepRow) -> bool:
    """Let as many items begin as both windows have room for; say whether any did."""
    assert group.parallel_count is not None
    fanout = unit.definition(group).fanout
    concurrency = fanout.concurrency if fanout is not None else None
    carried = unit.load_held_items(tx, group.index) if is_reopened(group) else []
    active = group.items_placed - group.items_ended - len(carried)
    room = len(carried) + group.parallel_count - group.items_placed
    if concurrency is not None:
        room = min(room, concurrency - active)
    if unit.graph.max_parallel is not None:
        room = min(room, unit.graph.max_parallel - unit.task.places_taken)
    for item in carried[: max(room, 0)]:
        transitions.release(unit, item)
    released = min(len(carried), max(room, 0))
    count = min(room - released, unit.admissions)
    if count > 0:
        _make_items(tx, unit, group, count)
        unit.admissions -= count
    left = len(carried) - released + group.parallel_count - group.items_placed
    if left == 0 or (concurrency is not None and active + released + count >= concurrency):
        transitions.let_go(unit, group)
        group.wake_at = None
    elif unit.admissions == 0:
        # This transaction has made all the rows it may: go on in the next turn.
        group.wake_at = unit.now
    return released + count > 0


def is_reopened(group: StepRow) -> bool:
    """Whether a group was carried over from another task: it was never claimed in this one.

    Its items that are to run again have rows already, held back until the window reaches them.
    """
    return group.claim_token == 0


def _make_items(tx: Connection, unit: Unit, group: StepRow, count: int) -> None:
    items = json.loads(group.extra.get("items") or reads.group_items(tx, group.id))
    definition = unit.definition(group)
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
        made.append(unit.add(item))
        transitions.release(unit, item)
    inherited_calls.inherit_items(tx, unit, made)
    group.items_placed = first + count
    unit.task.steps_open = unit.task.steps_open + count


def count_item(tx: Connection, unit: Unit, item: StepRow) -> None:
    """Count an ended item off its group, which admits the next one or ends."""
    unit.load(tx, [(item.index, -1)])
    group = unit.steps[(item.index, -1)]
    group.items_ended = group.items_ended + 1
    if item.status == StepStatus.FAILED:
        group.items_failed = group.items_failed + 1
    elif not transitions.is_skipped_by_failure(item):
        group.items_done = group.items_done + 1
    if close_if_over(unit, group):
        return
    if is_reopened(group) or (
        not _is_stopping(unit, group) and group.items_placed < (group.parallel_count or 0)
    ):
        transitions.hold(unit, group)


def close_if_over(unit: Unit, group: StepRow) -> bool:
    """End a group whose items have all ended, or all those that will ever begin."""
    if group.status != StepStatus.WAITING or group.items_ended < group.items_placed:
        return False
    if group.items_placed < (group.parallel_count or 0) and not _is_stopping(unit, group):
        return False
    if group.items_failed > 0:
        count = f"{group.items_failed} of {group.parallel_count} items failed"
        transitions.fail(unit, group, StepError("items_failed", "code", count))
    elif group.items_done == group.parallel_count:
        transitions.succeed(unit, group, None)
    else:
        transitions.skip(unit, group, "fail_fast")
    return True


def _is_stopping(unit: Unit, group: StepRow) -> bool:
    """Whether no further item of a group is to begin."""
    if group.items_failed > 0 and unit.graph.fail_fast:
        return True
    return unit.task.phase != "normal" and unit.definition(group).run_on == "success"


def error_text(error: StepError, attempt: int) -> str:
    """Write an error as it is stored."""
    return json.dumps(error.document(attempt), ensure_ascii=False)
