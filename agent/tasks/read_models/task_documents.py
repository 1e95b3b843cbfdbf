"""Tasks as documents: the same for every surface, read in one snapshot."""

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from agent.core.clock import to_iso
from agent.core.lazy_module import lazy
from agent.core.plain_json import Json
from agent.core.state_machine import STEP_ENDED, StepStatus, TaskStatus
from agent.core.waits import Items
from agent.store.db.database import Connection
from agent.store.read import views
from agent.tasks.errors import NotFoundError

if TYPE_CHECKING:
    from agent.store.artifacts import artifact_rows
    from agent.store.engine import attempt_reads as read
    from agent.store.engine import task_rows
    from agent.tasks.read_models import (
        outputs,
        person_waits,
        state_documents,
        transcript,
        version_facts,
    )
    from agent.tasks.state.graph_cache import GraphCache
    from agent.workflows.graph import Graph
else:
    # A list needs none of them, and a task's document not always all.
    artifact_rows = lazy("agent.store.artifacts.artifact_rows")
    outputs = lazy("agent.tasks.read_models.outputs")
    person_waits = lazy("agent.tasks.read_models.person_waits")
    read = lazy("agent.store.engine.attempt_reads")
    state_documents = lazy("agent.tasks.read_models.state_documents")
    task_rows = lazy("agent.store.engine.task_rows")
    transcript = lazy("agent.tasks.read_models.transcript")
    version_facts = lazy("agent.tasks.read_models.version_facts")

MIN_ID_CHARACTERS: Final = 3
PRIORITY_NAMES: Final = {0: "high", 1: "normal", 2: "low"}


class AmbiguousIdError(Exception):
    """Several ids match a text."""


def find_task(connection: Connection, text: str) -> str:
    """Return the one task whose id is, begins with, or ends with a text."""
    return find_one(text, "task", lambda part: views.tasks_like(connection, part))


def find_named_task(connection: Connection, text: str) -> str:
    """Return the task that a person means: by its id, or the newest as `last` or `last:WORKFLOW`.

    A program that may repeat a command must not use this: another task may be the newest by then.
    """
    workflow = newest_of(text)
    if workflow is None:
        return find_task(connection, text)
    task_id = views.newest_task(connection, workflow)
    if task_id is None:
        raise no_task_yet(workflow)
    return task_id


def newest_of(text: str) -> str | None:
    """Return the workflow whose newest task a text means, "" for any; None for an id."""
    word, _, workflow = text.strip().partition(":")
    return workflow if word.lower() == "last" else None


def no_task_yet(workflow: str) -> NotFoundError:
    """Return the error for `last` where there is no task."""
    return NotFoundError("there is no task yet" + (f" of {workflow!r}" if workflow else ""))


def find_one(text: str, what: str, like: Callable[[str], list[str]]) -> str:
    """Return the one id that matches a text; `like` returns a few that do."""
    text = text.strip().lower()
    if len(text) < MIN_ID_CHARACTERS or not set(text) <= set("0123456789abcdef-"):
        raise NotFoundError(
            f"{text!r} is not a valid {what} id: give at least three characters of one (0-9, a-f)"
            + (", `last` or `last:WORKFLOW`" if what == "task" else "")
        )
    ids = like(text)
    if not ids:
        raise NotFoundError(f"there is no {what} {text}")
    if len(ids) > 1:
        raise AmbiguousIdError(f"{text} could be any of: {', '.join(ids)}")
    return ids[0]


def short_id(task_id: str) -> str:
    """Return the end of an id, which tells tasks apart that were made together."""
    return task_id[-8:]


def task_document(
    connection: Connection, task_id: str, graphs: "GraphCache | None" = None
) -> dict[str, Json]:
    """Return everything about a task, as `agent show --json` and `GET /tasks/{id}` print it."""
    task = views.task(connection, task_id)
    if task is None:
        raise NotFoundError(f"there is no task {task_id}")
    if graphs is None:
        from agent.tasks.state.graph_cache import GraphCache

        graphs = GraphCache()
    graph = graphs.get(connection, task["workflow_name"], task["workflow_version"])
    rows = views.steps(connection, task_id)
    used = {}
    if any(row["kind"] in transcript.MODELLED for row in rows):
        used = transcript.usage(connection, task_id)
    delays = {}
    if any(row["status"] == StepStatus.RUNNING for row in rows):
        delays = views.delays(connection, task_id)
    state = state_documents.steps_with_state(connection, task_id, graph)
    steps = [
        {**_step_document(connection, row, graph, used, delays), "state": state.get(row["id"])}
        for row in rows
    ]
    person_waits.add_questions(connection, task_id, steps)
    person_waits.add_workers(connection, steps)
    person_waits.add_childrens(connection, task_id, task["status"], steps)
    document = summary(task, views.retried_as(connection, [task_id]).get(task_id))
    output, error = None, _loaded(task["error"])
    if task["status"] == TaskStatus.SUCCEEDED:
        try:
            output = outputs.task_output(connection, task_id, graph)
        except outputs.OutputError as exception:
            error = exception.document()
    document.update(
        {
            "waiting_on": current_waits(task["status"], steps),
            "current_step": next(
                (step["name"] for step in steps if step["status"] not in STEP_ENDED), None
            ),
            "input": _loaded(task["input"]),
            "output": output,
            "error": error,
            "trigger": _loaded(task["trigger"]),
            "deadline": to_iso(task["deadline"]),
            "next_wake_time": to_iso(task["next_wake_time"]),
            "parent": task["parent_task_id"],
            "retry_of": task["retry_of"],
            "forked_from": task["forked_from"],
            "origin": task["origin_id"],
            "chat_origin": _loaded(task["chat_origin"]),
            "children": task_rows.children(connection, task_id),
            "unknown_effects": unknown_effects(connection, task),
            "usage": transcript.total([step["usage"] for step in steps if step["usage"]]),
            "steps": steps,
            **version_facts.version_document(
                connection, task["workflow_name"], task["workflow_version"], graph
            ),
        }
    )
    return document


def unknown_effects(
    connection: Connection, task: dict[str, Any], step_id: str | None = None
) -> list[Json]:
    """Return what an ended task, or one of its steps, may have done: no result was recorded."""
    if task["status"] not in (TaskStatus.FAILED, TaskStatus.CANCELED):
        return []
    return [
        {
            "step": row["name"]
            if row["parallel_index"] < 0
            else f"{row['name']}[{row['parallel_index']}]",
            "action": row["action"],
            "call": row["id"],
            "since": to_iso(row["created_at"]),
        }
        for row in views.unknown_effects(connection, task["id"])
        if step_id in (None, row["step_id"])
    ]


def retried_words(task: Mapping[str, Any]) -> str:
    """Say as what a task was retried; empty if it was not."""
    again = task["retried_as"]
    return f"retried as {short_id(again['id'])} ({again['status']})" if again else ""


def summary(task: dict[str, Any], retried_as: dict[str, Json] | None) -> dict[str, Json]:
    """Return what lists and documents of tasks have in common."""
    return {
        "id": task["id"],
        "workflow": task["workflow_name"],
        "version": task["workflow_version"],
        "status": task["status"],
        "activity": task["activity"],
        "priority": PRIORITY_NAMES[task["priority"]],
        "created_at": to_iso(task["created_at"]),
        "started_at": to_iso(task["started_at"]),
        "ended_at": to_iso(task["ended_at"]),
        "retried_as": retried_as,
        "pause_reason": task["pause_reason"],
        **_pause(task),
    }


def _pause(task: dict[str, Any]) -> dict[str, Json]:
    """Return what paused a task, and the arguments of `agent` that let it go on."""
    if task["status"] != TaskStatus.PAUSED:
        return {"pause_kind": None, "pause_command": None}
    command = task["pause_command"] or f"resume {short_id(task['id'])}"
    return {"pause_kind": task["pause_kind"], "pause_command": command}


def _step_document(
    connection: Connection,
    row: dict[str, Any],
    graph: "Graph",
    used: dict[str, dict[str, Json]],
    delays: dict[str, str],
) -> dict[str, Json]:
    output = artifact_rows.load(connection, row["output"])
    is_group = row["parallel_index"] < 0 and row["parallel_count"] is not None
    if is_group and row["status"] == StepStatus.SUCCEEDED:
        output = read.gathered(connection, row["task_id"], row["index"])
    name = graph.steps[row["index"]].name
    is_item = row["parallel_index"] >= 0
    return {
        "name": f"{name}[{row['parallel_index']}]" if is_item else name,
        "index": row["index"],
        "parallel_index": row["parallel_index"] if is_item else None,
        "parallel_count": row["parallel_count"],
        "kind": row["kind"],
        "status": row["status"],
        "attempt": row["attempt"],
        "max_attempts": row["max_attempts"],
        "waiting_on": person_waits.wait_document(row),
        "delay": _loaded(delays.get(row["id"])),
        "wake_at": to_iso(row["wake_at"]),
        "output": output,
        "error": _loaded(row["error"]),
        "skip_reason": row["skip_reason"],
        "depends_on": graph.steps[row["index"]].depends_on,
        "item": _loaded(row["item"]),
        "usage": used.get(row["id"]) if row["kind"] in transcript.MODELLED else None,
        "started_at": to_iso(row["started_at"]),
        "ended_at": to_iso(row["ended_at"]),
    }


def current_waits(status: str, steps: list[dict[str, Json]]) -> list[dict[str, Json]]:
    """Return what each step of an open task waits on now, beside the step's name."""
    if status not in (TaskStatus.RUNNING, TaskStatus.PAUSED):
        return []
    documents: list[dict[str, Json]] = []
    for step in steps:
        match step["status"]:
            case StepStatus.RUNNING if step["delay"]:
                documents.append({"step": step["name"], **step["delay"]})
            case StepStatus.WAITING if not isinstance(person_waits.wait_of(step), Items):
                documents.append({"step": step["name"], **(step["waiting_on"] or {})})
            case StepStatus.PENDING if step["attempt"] > 1 and step["wake_at"]:
                documents.append({"step": step["name"], "retry_at": step["wake_at"]})
    return documents


def read_events(
    connection: Connection,
    after: str | None = None,
    task_id: str | None = None,
    limit: int = 100,
    *,
    is_newest: bool = False,
) -> list[dict[str, Json]]:
    """Return events after a cursor, oldest first; each carries the cursor that follows it.

    With `is_newest` they are the last ones up to now, not the first ones after the cursor.
    """
    xid, event_id = parse_cursor(after)
    rows = views.events(connection, xid, event_id, task_id, limit, is_newest=is_newest)
    return [
        {
            "cursor": f"{row['xid']}-{row['id']}",
            "task": row["task_id"],
            "seq": row["seq"],
            "type": row["type"],
            "step": row["step_name"],
            "attempt": row["attempt"],
            "at": to_iso(row["at"]),
            "data": _loaded(row["data"]),
        }
        for row in rows
    ]


def parse_cursor(text: str | None) -> tuple[int, int]:
    """Read a cursor as events carry it; none is the beginning."""
    if text is None:
        return (-1, -1)
    xid, separator, event_id = text.partition("-")
    if not separator or not xid.isdigit() or not event_id.isdigit():
        raise ValueError(f"{text!r} is not a cursor, such as 123-456")
    return (int(xid), int(event_id))


def step_logs(
    connection: Connection,
    task_id: str,
    step: str | None = None,
    attempt: int | None = None,
    after: int = 0,
    limit: int = 1000,
    before: int | None = None,
    search: str = "",
) -> list[dict[str, Json]]:
    """Return pieces of a task's logs after the piece with a given id, oldest first.

    With `before` they are the last ones before a piece, not the first ones after one; with `search`
    those that have this text.
    """
    return [
        {
            "id": piece_id,
            "step": step_name,
            "attempt": number,
            "at": to_iso(at),
            "stream": stream,
            "text": text,
        }
        for piece_id, step_name, number, at, stream, text in views.logs(
            connection, task_id, step, attempt, after, limit, before, search
        )
    ]


def find_artifact(connection: Connection, beginning: str) -> bytes:
    """Return the one large value whose hash begins with a text."""
    names = artifact_rows.names_like(connection, beginning)
    if len(names) > 1:
        raise AmbiguousIdError(f"{beginning} could be any of: {', '.join(names)}")
    content = artifact_rows.get(connection, names[0]) if names else None
    if content is None:
        raise NotFoundError(f"there is no artifact {beginning}")
    return content


def _loaded(text: str | None) -> Json:
    return json.loads(text) if text is not None else None
