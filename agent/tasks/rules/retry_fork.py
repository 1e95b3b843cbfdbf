"""New tasks that go on from old ones: a retry keeps what succeeded, a fork repeats from a step.

A retry is the same work to the outside world: it keeps the origin, and with it the keys that remotes
are given, and it inherits the calls of the steps that run again, so that a recorded one is not
repeated and an unknown one is not forgotten. A fork is new work: it derives new keys.

Neither relies on what a person answered under another input (`answers`): if a step that runs again
comes after such an answer, the question is asked again, and all that follows it runs again.
"""

import json
from typing import Any, Final, NamedTuple

from agent.core import waits
from agent.core.clock import SECOND
from agent.core.ids import new_id
from agent.core.state_machine import STEP_ENDED, StepStatus, TaskStatus
from agent.core.waits import Items
from agent.steps.types.outcome import Json
from agent.store.db import json_values
from agent.store.db.database import Connection
from agent.store.engine import lineage
from agent.tasks.rules import advance, kept_answers
from agent.tasks.rules.creation import blank_step
from agent.tasks.state import transitions
from agent.tasks.state.locked_task import LockedTask
from agent.tasks.state.rows import StepRow, TaskRow
from agent.tasks.state.transitions import SKIPPED_BY_FAILURE
from agent.workflows.compile.inputs import check_inputs
from agent.workflows.graph import Graph

_COPIED: Final = (
    "index",
    "parallel_index",
    "id",
    "status",
    "attempt",
    "output",
    "skip_reason",
    "idempotency_key",
    "item",
    "items",
    "parallel_count",
    "items_done",
    "items_placed",
    "items_ended",
    "started_at",
    "ended_at",
)


class Parent(NamedTuple):
    """The step that a new task is the child of."""

    task_id: str
    step_id: str
    depth: int
    trigger: Json


class Forked(NamedTuple):
    """A fork, and what to know about it before it runs."""

    locked: LockedTask
    repeated: list[str]
    """Steps whose effects have happened, or may have, and that run again."""
    asked_again: list[str]
    """Steps that an answer under another input had ended."""


def retry(tx: Connection, old: LockedTask, parent: Parent | None = None) -> LockedTask:
    """Make the task that retries an old one, for itself or as the child of a step."""
    new = _successor(tx, old, retry_of=old.task.id, origin_id=old.task.origin_id, parent=parent)
    new.retries = old
    _carry_over(tx, old, new, rerun=frozenset())
    return new


def fork(tx: Connection, old: LockedTask, from_step: str, edited: dict[str, Json]) -> Forked:
    """Make the task that runs a step and its downstream again."""
    new = _successor(tx, old, forked_from=old.task.id, edited=edited)
    rerun = _downstream(old.graph, old.graph.index_of[from_step])
    asked_again = _carry_over(tx, old, new, rerun=rerun)
    old.emit("task.forked", None, {"as": new.task.id, "from": from_step})
    return Forked(new, _repeated(tx, old, new), asked_again)


def _repeated(tx: Connection, old: LockedTask, new: LockedTask) -> list[str]:
    """Name the steps whose effects have happened, or may have, and that the new task runs again.

    Besides those downstream, that is what the old task has begun elsewhere and not ended well.
    """
    kept = {place for place, step in new.steps.items() if step.status in STEP_ENDED}
    again = {place[0] for place in lineage.places_that_acted(tx, old.task.id) if place not in kept}
    return [old.graph.steps[index].name for index in sorted(again)]


def _downstream(graph: Graph, index: int) -> frozenset[int]:
    found = {index}
    queue = [index]
    while queue:
        for dependent in graph.dependents[queue.pop()]:
            if dependent not in found:
                found.add(dependent)
                queue.append(dependent)
    return frozenset(found)


def _successor(
    tx: Connection,
    old: LockedTask,
    *,
    retry_of: str | None = None,
    forked_from: str | None = None,
    origin_id: str | None = None,
    edited: dict[str, Json] | None = None,
    parent: Parent | None = None,
) -> LockedTask:
    task_id = new_id()
    graph = old.graph
    ((given, trigger),) = tx.query(
        "SELECT input, trigger FROM tasks WHERE id = :id", id=old.task.id
    )
    if edited:
        merged = {**json.loads(given), **edited}
        given = json_values.encode(check_inputs(graph, merged), "input")
    deadline = None
    if graph.timeout_seconds is not None:
        deadline = old.now + int(graph.timeout_seconds * SECOND)
    task = TaskRow.new(
        task_id,
        TaskStatus.PENDING,
        workflow_name=old.task.workflow_name,
        workflow_version=old.task.workflow_version,
        priority=old.task.priority,
        deadline=deadline,
        origin_id=origin_id or task_id,
        parent_task_id=parent.task_id if parent is not None else None,
        parent_step_id=parent.step_id if parent is not None else None,
        # Retried alone, a child is nobody's any more, and may nest no deeper than it might.
        depth=parent.depth if parent is not None else old.task.depth,
    )
    if parent is not None:
        trigger = json_values.encode(parent.trigger, "trigger")
    task.also(
        input=given, trigger=trigger, created_at=old.now, retry_of=retry_of, forked_from=forked_from
    )
    locked = LockedTask(task, graph, old.now, is_new=True)
    source = {"retry_of": retry_of} if retry_of else {"forked_from": forked_from}
    created = {"workflow": graph.name, "version": task.workflow_version, **source}
    if parent is not None:
        created["parent"] = parent.task_id
    locked.emit("task.created", None, created)
    return locked


def _carry_over(
    tx: Connection, old: LockedTask, new: LockedTask, rerun: frozenset[int]
) -> list[str]:
    """Give the new task its steps: those kept as they ended, those that run again blank.

    Name the steps that ended well and ask again.
    """
    rows = _rows(tx, old)
    graph = new.graph
    is_retry = not rerun
    foreign = kept_answers.given_under_another_input(
        tx, old.task.id, graph, rows, new.task.extra["input"]
    )
    rerun, kept = _settled(graph, rows, rerun, foreign)
    for index in graph.order:
        group, *items = rows[index]
        parents_kept = all(parent in kept for parent in graph.parents[index])
        if index in kept:
            for row in (group, *items):
                _keep(new, row)
        elif index not in rerun and group["items"] is not None and parents_kept and items:
            _reopen_group(new, group, items)
        else:
            step = new.add(blank_step(graph, new.task.id, index))
            if is_retry:
                _mark_past(tx, step, group["id"])
    _open(tx, new, kept)
    return [
        graph.steps[index].name for index in sorted(foreign - kept) if _ended_well(rows[index][0])
    ]


def _rows(tx: Connection, old: LockedTask) -> dict[int, list[dict[str, Any]]]:
    """Read the steps of the old task by their places, each group before its items."""
    rows: dict[int, list[dict[str, Any]]] = {}
    selected = ", ".join(f'"{name}"' for name in _COPIED)
    for found in tx.query(
        f'SELECT {selected} FROM steps WHERE task_id = :id ORDER BY "index", parallel_index',
        id=old.task.id,
    ):
        row = dict(zip(_COPIED, found, strict=True))
        rows.setdefault(row["index"], []).append(row)
    return rows


def _settled(
    graph: Graph, rows: kept_answers.Rows, rerun: frozenset[int], foreign: frozenset[int]
) -> tuple[frozenset[int], set[int]]:
    """Decide what runs again and what is kept; nothing that runs again relies on a foreign answer.

    Asking again makes more steps run again, which may rely on further answers.
    """
    while True:
        kept: set[int] = set()
        for index in graph.order:
            parents_kept = all(parent in kept for parent in graph.parents[index])
            if index not in rerun and _ended_well(rows[index][0]) and parents_kept:
                kept.add(index)
        relied_on = {index for index in foreign - rerun if not _downstream(graph, index) <= kept}
        if not relied_on:
            return rerun, kept
        rerun = rerun.union(*(_downstream(graph, index) for index in relied_on))


def _open(tx: Connection, new: LockedTask, kept: set[int]) -> None:
    """Start the new task: count what is open, and release what is ready."""
    graph = new.graph
    for index in range(len(graph.steps)):
        if index not in kept:
            step = new.steps[(index, -1)]
            open_parents = [parent for parent in graph.parents[index] if parent not in kept]
            step.deps_remaining = len(open_parents)
    new.task.steps_open = sum(
        1 for step in new.steps.values() if step.status in ("pending", "waiting")
    )
    transitions.move_task(new, "task.started")
    new.task.also(started_at=new.now)
    for place in sorted(new.steps):
        step = new.steps[place]
        if step.status == StepStatus.WAITING or (
            step.is_item and step.status == StepStatus.PENDING
        ):
            # A group that goes on, and its items: the window lets them go.
            transitions.hold(new, step)
        elif step.status == StepStatus.PENDING and step.deps_remaining == 0:
            advance.make_ready(new, step)
    advance.advance(tx, new)


def _ended_well(row: dict[str, Any]) -> bool:
    if row["status"] == StepStatus.SUCCEEDED:
        return True
    return (
        bool(row["status"] == StepStatus.SKIPPED and row["skip_reason"] not in SKIPPED_BY_FAILURE)
        and row["skip_reason"] != "run_on"
    )


def _keep(new: LockedTask, row: dict[str, Any]) -> None:
    step = StepRow.new(
        new_id(),
        new.task.id,
        row["index"],
        parallel_index=row["parallel_index"],
        status=row["status"],
        attempt=row["attempt"],
        max_attempts=max(row["attempt"], 1),
        parallel_count=row["parallel_count"],
        items_done=row["items_done"],
        items_placed=row["items_placed"],
        items_ended=row["items_ended"],
        started_at=row["started_at"],
    )
    step.also(
        output=row["output"],
        skip_reason=row["skip_reason"],
        item=row["item"],
        items=row["items"],
        ended_at=row["ended_at"],
    )
    new.add(step)
    new.emit("step.kept", step, {"status": row["status"], "from": row["id"]})


def _reopen_group(new: LockedTask, group: dict[str, Any], items: list[dict[str, Any]]) -> None:
    """Let a group go on: items that ended well are kept, the others run again."""
    done = 0
    for row in items:
        if _ended_well(row):
            _keep(new, row)
            done += 1
            continue
        definition = new.graph.steps[row["index"]]
        item = StepRow.new(
            new_id(),
            new.task.id,
            row["index"],
            parallel_index=row["parallel_index"],
            max_attempts=definition.retry.max_attempts,
            parallel_count=row["parallel_count"],
            claim_token=1,
        )
        item.also(item=row["item"])
        new.add(item)
    step = StepRow.new(
        new_id(),
        new.task.id,
        group["index"],
        status=StepStatus.WAITING,
        max_attempts=new.graph.steps[group["index"]].retry.max_attempts,
        parallel_count=group["parallel_count"],
        items_placed=len(items),
        items_ended=done,
        items_done=done,
        waiting_on=waits.dump(Items(group["parallel_count"])),
    )
    step.also(items=group["items"])
    new.add(step)
    new.emit("step.kept", step, {"status": str(StepStatus.WAITING), "from": group["id"]})


def _mark_past(tx: Connection, step: StepRow, old_step_id: str) -> None:
    """A step with inherited calls starts as one that was claimed before: its calls are read."""
    if tx.query("SELECT 1 FROM tool_calls WHERE step_id = :id LIMIT 1", id=old_step_id):
        step.claim_token = 1
