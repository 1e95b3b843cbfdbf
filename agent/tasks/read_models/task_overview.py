"""One task as a page shows it: everything about it in bounded size, whatever its graph is.

Unlike `task_documents.task_document` it has no outputs of steps, and of a group only counts and the
items that need attention. The number of statements does not depend on the task.
"""

import json
from typing import Any, Final

from agent.core.clock import to_iso
from agent.core.state_machine import TaskStatus
from agent.steps.types.outcome import Json
from agent.store.db.database import Connection
from agent.store.engine import lineage
from agent.store.read import overview, views
from agent.tasks.errors import NotFoundError
from agent.tasks.read_models import outputs, person_waits, task_documents, transcript
from agent.tasks.state.graph_cache import GraphCache
from agent.workflows.graph import Graph

Document = dict[str, Json]

_MOST_GATHERED: Final = 200
"""Items of a group whose outputs a page still puts together."""


def task_overview(connection: Connection, task_id: str, graphs: GraphCache, now: int) -> Document:
    """Return a task with its steps, its relatives and what happened to its steps."""
    task = views.task(connection, task_id)
    if task is None:
        raise NotFoundError(f"there is no task {task_id}")
    graph = graphs.get(connection, task["workflow_name"], task["workflow_version"])
    rows = overview.steps(connection, task_id)
    used = transcript.usage(connection, task_id)
    kept = lineage.kept_steps(connection, task_id)
    delays = views.delays(connection, task_id)
    counts = overview.item_counts(connection, task_id)
    steps = [
        {
            **step_entry(row, delays),
            "depends_on": list(graph.parents[row["index"]]),
            "items": counts.get(row["index"], {}),
            "is_kept": row["id"] in kept,
            "usage": used.get(row["id"]) if row["kind"] in transcript.MODELLED else None,
        }
        for row in rows
    ]
    items = [step_entry(row, delays) for row in overview.open_items(connection, task_id)]
    person_waits.add_questions(connection, task_id, steps + items)
    person_waits.add_workers(connection, steps + items)
    person_waits.add_childrens(connection, task_id, task["status"], steps + items)
    is_large = any((row["parallel_count"] or 0) > _MOST_GATHERED for row in rows)
    output, error = (None, _loaded(task["error"])) if is_large else _result(connection, task, graph)
    return {
        **task_documents.summary(task, views.retried_as(connection, [task_id]).get(task_id)),
        "waiting_on": task_documents.current_waits(task["status"], steps + items),
        "input": json.loads(task["input"]),
        "output": output,
        "has_large_output": is_large and task["status"] == TaskStatus.SUCCEEDED,
        "error": error,
        "trigger": _loaded(task["trigger"]),
        "trigger_id": task["trigger_id"],
        "deadline": to_iso(task["deadline"]),
        "parent": task["parent_task_id"],
        "retry_of": task["retry_of"],
        "forked_from": task["forked_from"],
        "usage": transcript.total(list(used.values())),
        "steps": steps,
        "items": items,
        "step_count": len(graph.steps),
        "children": [_relative(row) for row in overview.children(connection, task_id)],
        "successors": [_relative(row) for row in overview.successors(connection, task_id)],
        **history(connection, task, now),
    }


def history(connection: Connection, task: dict[str, Any], now: int) -> Document:
    """Return when the steps and items of a task's row ran and waited."""
    is_wide = overview.has_many_items(connection, task["id"])
    start, end = task["started_at"] or task["created_at"], task["ended_at"] or now
    return {
        "ended_at": to_iso(task["ended_at"]),
        "changes": overview.step_changes(connection, task["id"], with_items=not is_wide),
        "item_runs": overview.item_runs(connection, task["id"], start, end) if is_wide else [],
    }


def step_entry(row: dict[str, Any], delays: dict[str, str] | None = None) -> Document:
    """Return a step or an item without its output."""
    is_item = row["parallel_index"] >= 0
    return {
        "id": row["id"],
        "name": f"{row['name']}[{row['parallel_index']}]" if is_item else row["name"],
        "index": row["index"],
        "parallel_index": row["parallel_index"] if is_item else None,
        "parallel_count": row["parallel_count"],
        "kind": row["kind"],
        "status": row["status"],
        "attempt": row["attempt"],
        "max_attempts": row["max_attempts"],
        "waiting_on": person_waits.wait_document(row),
        "delay": _loaded((delays or {}).get(row["id"])),
        "wake_at": to_iso(row["wake_at"]),
        "error": _loaded(row["error"]),
        "skip_reason": row["skip_reason"],
        "item": _loaded(row["item"]),
        "started_at": to_iso(row["started_at"]),
        "ended_at": to_iso(row["ended_at"]),
    }


def _result(connection: Connection, task: dict[str, Any], graph: Graph) -> tuple[Json, Json]:
    """Return a task's output and its error."""
    error = _loaded(task["error"])
    if task["status"] != TaskStatus.SUCCEEDED:
        return None, error
    try:
        return outputs.task_output(connection, task["id"], graph), error
    except outputs.OutputError as exception:
        return None, exception.document()


def _relative(row: dict[str, Any]) -> Document:
    document: Document = {
        "id": row["id"],
        "workflow": row["workflow_name"],
        "version": row["workflow_version"],
        "activity": row["activity"],
        "created_at": to_iso(row["created_at"]),
        "started_us": row["started_at"],
        "ended_us": row["ended_at"],
    }
    if "step_name" in row:
        number = row["step_item"]
        name = row["step_name"]
        return document | {"step": name if number < 0 else f"{name}[{number}]"}
    return document | {"relation": "retry" if row["retry_of"] else "fork"}


def _loaded(text: str | None) -> Json:
    return json.loads(text) if text is not None else None
