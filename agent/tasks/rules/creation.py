"""New tasks: a submission becomes rows, created and started in one transaction."""

from collections.abc import Mapping
from typing import Final

from agent.core.clock import SECOND
from agent.core.ids import new_id
from agent.core.plain_json import Json
from agent.core.quick_classes.quick_dataclasses import dataclass, field
from agent.store.db import json_values
from agent.store.db.database import Connection
from agent.store.engine import workflow_versions
from agent.tasks.rules import advance, conversations
from agent.tasks.state import transitions
from agent.tasks.state.locked_task import LockedTask
from agent.tasks.state.rows import StepRow, TaskRow
from agent.workflows.graph import Graph

PRIORITIES: Final = {"high": 0, "normal": 1, "low": 2}


@dataclass(frozen=True, slots=True)
class Submission:
    """A request to start a task; its input has been checked against the workflow."""

    graph: Graph
    input: Mapping[str, Json] = field(default_factory=dict)
    priority: str | None = None
    trigger: Json = None
    dedupe_key: str | None = None
    source: str | None = None
    """The workflow file's text, kept with its version."""
    path: str | None = None
    """The workflow file, beside which `python` steps find their modules."""
    task_id: str = field(default_factory=new_id)
    parent_task_id: str | None = None
    parent_step_id: str | None = None
    depth: int = 0
    trigger_id: str | None = None
    """The schedule or watcher that starts it."""
    chat_origin: str | None = None
    """Where in a chat it is started, as it is stored."""


def register(tx: Connection, submission: Submission, now: int) -> int:
    """Return the version of a submission's workflow; register one if it differs from the latest."""
    graph = submission.graph
    return workflow_versions.register(
        tx,
        graph.name,
        graph.hash,
        graph.text,
        submission.source,
        submission.path,
        now,
        graph.code_text,
    )


def create(tx: Connection, submission: Submission, version: int, now: int) -> LockedTask:
    """Return a new task with all its steps, started, its first steps released."""
    graph = submission.graph
    deadline = None
    if graph.timeout_seconds is not None:
        deadline = now + int(graph.timeout_seconds * SECOND)
    task = TaskRow.new(
        submission.task_id,
        "pending",
        workflow_name=graph.name,
        workflow_version=version,
        priority=PRIORITIES[submission.priority or graph.priority],
        deadline=deadline,
        parent_task_id=submission.parent_task_id,
        parent_step_id=submission.parent_step_id,
        depth=submission.depth,
        trigger_id=submission.trigger_id,
        chat_origin=submission.chat_origin,
    )
    task.set_columns(
        input=json_values.encode(dict(submission.input), "input"),
        trigger=json_values.encode(submission.trigger, "trigger"),
        dedupe_key=submission.dedupe_key,
        created_at=now,
    )
    conversations.join_line(task, graph)
    locked = LockedTask(task, graph, now, is_new=True)
    locked.source_path = submission.path
    for index in range(len(graph.steps)):
        locked.add(blank_step(graph, task.id, index))
    task.steps_open = len(graph.steps)
    data: dict[str, Json] = {"workflow": graph.name, "version": version}
    if submission.parent_task_id is not None:
        data["parent"] = submission.parent_task_id
    locked.emit("task.created", None, data)
    start(tx, locked)
    return locked


def blank_step(graph: Graph, task_id: str, index: int) -> StepRow:
    """Return a new, pending step."""
    return StepRow.new(
        new_id(),
        task_id,
        index,
        deps_remaining=len(graph.parents[index]),
        max_attempts=graph.steps[index].retry.max_attempts,
    )


def start(tx: Connection, locked: LockedTask) -> None:
    """Start a task: its steps without open dependencies are released."""
    transitions.move_task(locked, "task.started")
    locked.task.set_columns(started_at=locked.now)
    for step in list(locked.steps.values()):
        if step.deps_remaining == 0 and step.status == "pending":
            advance.make_ready(locked, step)
    advance.advance(tx, locked)
