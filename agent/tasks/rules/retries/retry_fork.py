"""New tasks that continue an ended or running one: a retry, or a fork from a step.

A retry is the same work to the outside world. It keeps the steps that succeeded, and it keeps the
origin, from which the keys given to remotes are derived. Its other steps inherit the old calls: a
recorded call is not repeated, and an unknown one stays unknown (`inherited_calls`).

A fork is new work: it repeats a step and everything downstream, or all steps, under new keys.
"""

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from agent.core.clock import SECOND
from agent.core.ids import new_id
from agent.core.state_machine import STEP_ENDED, TaskStatus
from agent.steps.types.outcome import Json
from agent.store.db import json_values
from agent.store.db.database import Connection
from agent.store.engine import lineage, task_rows
from agent.tasks.rules import conversations
from agent.tasks.rules.retries.carry_over import carry_over, choose
from agent.tasks.state.locked_task import LockedTask
from agent.tasks.state.rows import TaskRow
from agent.workflows.compile.inputs import check_inputs
from agent.workflows.graph import Graph


class Parent(NamedTuple):
    """The step that a new task is the child of."""

    task_id: str
    step_id: str
    depth: int
    trigger: Json


class NewestVersion(NamedTuple):
    """The version under which a task goes on."""

    number: int
    graph: Graph


class Forked(NamedTuple):
    """A fork, and remarks to show a person before it runs."""

    locked: LockedTask
    repeated: list[str]
    """Steps that run again although their effects have happened, or may have."""
    asked_again: dict[str, list[str]]
    """Steps that run again because their answers do not cover what follows: each with the changes, if it was not the input."""


class Retried(NamedTuple):
    """A retry, and remarks to show a person before it runs."""

    locked: LockedTask
    asked_again: dict[str, list[str]]
    """As of a fork."""


def retry(
    tx: Connection,
    old: LockedTask,
    parent: Parent | None = None,
    latest: NewestVersion | None = None,
    above: Sequence[str] | None = None,
) -> Retried:
    """Make the task that retries an old one, on its own or as the child of a step.

    With `latest` it goes on under that version; raise `RefusedError` where that is not possible. With `above`, the changes
    of a task above, its questions are asked again.
    """
    new = _new_retry(tx, old, parent, latest)
    choice = choose(tx, old, new, above=above)
    _emit_created(new, {"retry_of": old.task.id}, choice.asked_again)
    carry_over(tx, old, new, choice)
    return Retried(new, choice.asked_again)


def check_retry(tx: Connection, old: LockedTask, latest: NewestVersion) -> None:
    """Raise `RefusedError` where a retry on the newest version would be refused; needs no lock."""
    choose(tx, old, _new_retry(tx, old, None, latest))


def _new_retry(
    tx: Connection, old: LockedTask, parent: Parent | None, latest: NewestVersion | None
) -> LockedTask:
    version = latest or NewestVersion(old.task.workflow_version, old.graph)
    input_text, trigger, _ = task_rows.input_of(tx, old.task.id)
    input_text = _input_for(version, old, input_text, {})
    task = _successor(old, version, retry_of=old.task.id)
    task.origin_id = old.task.origin_id
    # It stands for the same run: it counts for the overlap of its schedule.
    task.trigger_id = old.task.trigger_id
    if parent is not None:
        task.parent_task_id, task.parent_step_id = parent.task_id, parent.step_id
        task.depth = parent.depth
        trigger = json_values.encode(parent.trigger, "trigger")
    task.set_columns(input=input_text, trigger=trigger)
    conversations.join_line(task, version.graph)
    new = LockedTask(task, version.graph, old.now, is_new=True)
    new.retries = old
    return new


def fork(
    tx: Connection,
    old: LockedTask,
    from_step: str | None,
    edited: dict[str, Json],
    latest: NewestVersion | None = None,
) -> Forked:
    """Make the task that runs a step and its downstream again, or all steps, with an edited input if given."""
    new = _new_fork(tx, old, edited, latest)
    graph = new.graph
    rerun = frozenset(range(len(graph.steps)))
    if from_step is not None:
        rerun = graph.downstream(graph.index_of[from_step])
    choice = choose(tx, old, new, rerun, is_from_beginning=from_step is None)
    _emit_created(new, {"forked_from": old.task.id}, choice.asked_again)
    carry_over(tx, old, new, choice)
    old.emit("task.forked", None, {"as": new.task.id, "from": from_step})
    return Forked(new, _repeated(tx, old, new), choice.asked_again)


def check_fork(tx: Connection, old: LockedTask, from_step: str, latest: NewestVersion) -> None:
    """Raise `RefusedError` where a fork on the newest version would be refused; needs no lock."""
    new, graph = _new_fork(tx, old, {}, latest), latest.graph
    choose(tx, old, new, graph.downstream(graph.index_of[from_step]))


def _new_fork(
    tx: Connection, old: LockedTask, edited: dict[str, Json], latest: NewestVersion | None
) -> LockedTask:
    version = latest or NewestVersion(old.task.workflow_version, old.graph)
    graph = version.graph
    input_text, trigger, _ = task_rows.input_of(tx, old.task.id)
    input_text = _input_for(version, old, input_text, edited)
    task = _successor(old, version, forked_from=old.task.id)
    task.set_columns(input=input_text, trigger=trigger)
    conversations.join_line(task, graph)
    return LockedTask(task, graph, old.now, is_new=True)


def _input_for(version: NewestVersion, old: LockedTask, text: str, edited: dict[str, Json]) -> str:
    """Return the input of a task that continues an old one, checked where anything has changed."""
    if not edited and version.number == old.task.workflow_version:
        return text
    checked = check_inputs(version.graph, {**json.loads(text), **edited})
    return json_values.encode(checked, "input")


def _successor(old: LockedTask, version: NewestVersion, **source: str) -> TaskRow:
    """Return the row of a task that continues an old one; `source` is the column that names it."""
    graph = version.graph
    deadline = None
    if graph.timeout_seconds is not None:
        deadline = old.now + int(graph.timeout_seconds * SECOND)
    task = TaskRow.new(
        new_id(),
        TaskStatus.PENDING,
        workflow_name=old.task.workflow_name,
        workflow_version=version.number,
        priority=old.task.priority,
        deadline=deadline,
        # A child that is continued without its parent may still nest no deeper than before.
        depth=old.task.depth,
        chat_origin=old.task.chat_origin,
    )
    task.set_columns(created_at=old.now, **source)
    return task


def _emit_created(
    new: LockedTask, source: dict[str, Json], asked_again: Mapping[str, Sequence[str]]
) -> None:
    task = new.task
    data = {"workflow": new.graph.name, "version": task.workflow_version, **source}
    if asked_again:
        # Questions say for which changes they are asked again (`lineage.asked_again`).
        data["asked_again"] = {name: list(changes) for name, changes in asked_again.items()}
    if task.parent_task_id is not None:
        data["parent"] = task.parent_task_id
    new.emit("task.created", None, data)


def _repeated(tx: Connection, old: LockedTask, new: LockedTask) -> list[str]:
    """Name the steps that the new task runs again although they have acted, or may have.

    Besides the downstream of a fork these are steps elsewhere that began and did not end well.
    """
    kept = {
        (new.graph.steps[index].name, item)
        for (index, item), step in new.steps.items()
        if step.status in STEP_ENDED
    }
    acted = lineage.addresses_that_acted(tx, old.task.id)
    again = {index for index, item in acted if (old.graph.steps[index].name, item) not in kept}
    names = [old.graph.steps[index].name for index in sorted(again)]
    return [name for name in names if name in new.graph.index_of]
