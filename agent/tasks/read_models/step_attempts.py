"""A step with each of its attempts: what it was given, what it did and what came of it.

Attempts are not stored as rows. They are read from the events of the step, its calls, its approvals and its
log. The configuration of an attempt is what the log recorded, or the definition's where that has no templates.
"""

import json
from typing import Any, Final

from agent.core.clock import to_iso
from agent.core.state_machine import STEP_ENDED, StepStatus, TaskStatus
from agent.steps.types.outcome import Json
from agent.store.artifacts import artifact_rows
from agent.store.db.database import Connection
from agent.store.engine import approval_rows
from agent.store.engine import attempt_reads as read
from agent.store.read import step_views, views
from agent.tasks.errors import NotFoundError
from agent.tasks.read_models import (
    person_waits,
    state_documents,
    task_documents,
    transcript,
    version_facts,
)
from agent.tasks.state.graph_cache import GraphCache
from agent.workflows.graph import Graph, Step

Document = dict[str, Json]

MAX_LOG_PIECES: Final = 1000
"""The last pieces of the log that a document has; `agent logs` has all of them."""
MAX_ITEMS: Final = 200
MAX_CHILDREN: Final = 200
_WITH_EXECUTORS: Final = ("python", "shell")
_TRACEBACK: Final = "error"
"""The stream of tracebacks: of the step's own code."""

_ENDINGS: Final = {
    "step.succeeded": "succeeded",
    "step.failed": "failed",
    "step.retried": "failed",
    "step.skipped": "skipped",
    "step.lost": "lost",
    "step.returned": "returned",
    "step.paused": "paused",
}
"""How an attempt ended, by the event of its end."""
_STOPPED: Final = ("returned", "waiting", "paused")
"""An attempt that was not over when its task was canceled."""


def step_document(
    connection: Connection, task_id: str, step: str, graphs: GraphCache | None = None
) -> Document:
    """Return a step with its attempts, as `agent show TASK STEP --json` prints it."""
    task = views.task(connection, task_id)
    row = None if task is None else step_views.step_by_name(connection, task_id, step)
    if task is None or row is None:
        raise NotFoundError(_missing(connection, task_id, step, exists=task is not None))
    graphs = graphs or GraphCache()
    graph = graphs.get(connection, task["workflow_name"], task["workflow_version"])
    definition = graph.steps[row["index"]]
    ran, ran_by = _where_it_ran(connection, row, definition, graphs)
    calls = [
        transcript.call_document(connection, call)
        for call in views.calls(connection, ran["task_id"], step_id=ran["id"])
    ]
    is_item = row["parallel_index"] >= 0
    is_group = not is_item and row["parallel_count"] is not None
    attempts = _attempts(connection, ran, ran_by)
    document: Document = {
        "task": task_id,
        "task_status": task["status"],
        "workflow": task["workflow_name"],
        "version": task["workflow_version"],
        "step": f"{definition.name}[{row['parallel_index']}]" if is_item else definition.name,
        "kind": row["kind"],
        "status": row["status"],
        "attempt": row["attempt"],
        "max_attempts": row["max_attempts"],
        "parallel_index": row["parallel_index"] if is_item else None,
        "parallel_count": row["parallel_count"],
        "item": _loaded(row["item"]),
        "depends_on": definition.depends_on,
        "definition": definition.config,
        "kept_from": None if ran is row else {"task": ran["task_id"], "step": ran["name"]},
        "waiting_on": person_waits.wait_document(row),
        "wake_at": to_iso(row["wake_at"]),
        "skip_reason": row["skip_reason"],
        "output": _output(connection, row, is_group=is_group),
        "error": _loaded(row["error"]) if row["status"] != StepStatus.SUCCEEDED else None,
        "started_at": to_iso(row["started_at"]),
        "ended_at": to_iso(row["ended_at"]),
        "state": state_documents.steps_with_state(connection, task_id, graph).get(row["id"]),
        "usage": _usage(connection, ran),
        **version_facts.version_document(
            connection, task["workflow_name"], task["workflow_version"], graph
        ),
        "unknown_effects": task_documents.unknown_effects(connection, task, row["id"]),
        "calls": calls,
        "children": step_views.step_children(connection, ran["id"], MAX_CHILDREN),
        "items": _items(connection, row, definition.name) if is_group else [],
        "attempts": attempts,
    }
    if task["status"] == TaskStatus.CANCELED:
        for attempt in attempts[-1:]:
            if attempt["status"] in _STOPPED:
                # No other attempt follows.
                attempt["status"] = "canceled"
    person_waits.add_questions(connection, task_id, [document])
    person_waits.add_workers(connection, [document])
    return document


def _missing(connection: Connection, task_id: str, step: str, *, exists: bool) -> str:
    if not exists:
        return f"there is no task {task_id}"
    rows = views.steps(connection, task_id)
    name, _, number = step.partition("[")
    items = [row for row in rows if row["name"] == name and row["parallel_index"] >= 0]
    if number and items:
        return (
            f"step {name!r} of task {task_id} has no item {number.rstrip(']')}: it has {len(items)}"
        )
    names = ", ".join(row["name"] for row in rows if row["parallel_index"] < 0)
    return f"task {task_id} has no step called {step!r}; its steps are {names}"


def _where_it_ran(
    connection: Connection, row: dict[str, Any], definition: Step, graphs: GraphCache
) -> tuple[dict[str, Any], Step]:
    """Follow a kept step back to where it really ended; return that row and its definition."""
    while (before := _kept_from(connection, row)) is not None:
        earlier = step_views.step_by_id(connection, before)
        if earlier is None:
            break
        row = earlier
        task = views.task(connection, row["task_id"])
        assert task is not None
        graph: Graph = graphs.get(connection, task["workflow_name"], task["workflow_version"])
        definition = graph.steps[row["index"]]
    return row, definition


def _kept_from(connection: Connection, row: dict[str, Any]) -> str | None:
    """Return the step of an earlier task that a step was kept from; None if it ran in its own."""
    for event in step_views.step_events(connection, row["task_id"], row["id"]):
        if event["type"] == "step.kept":
            data = json.loads(event["data"])
            return str(data["from"]) if data["status"] in STEP_ENDED else None
    return None


def _output(connection: Connection, row: dict[str, Any], *, is_group: bool) -> Json:
    if is_group and row["status"] == StepStatus.SUCCEEDED:
        return read.gathered(connection, row["task_id"], row["index"])
    return artifact_rows.load(connection, row["output"])


def _usage(connection: Connection, row: dict[str, Any]) -> Document | None:
    if row["kind"] not in transcript.MODELLED:
        return None
    return transcript.usage(connection, row["task_id"]).get(row["id"])


def _items(connection: Connection, row: dict[str, Any], name: str) -> list[Json]:
    """Return the items of a group, failed ones first; of many only the first."""
    items = step_views.items(connection, row["task_id"], row["index"], MAX_ITEMS)
    return [
        {
            "name": f"{name}[{item['parallel_index']}]",
            "status": item["status"],
            "attempt": item["attempt"],
            "item": _loaded(item["item"]),
            "error": _loaded(item["error"]) if item["status"] != StepStatus.SUCCEEDED else None,
        }
        for item in items
    ]


def _attempts(connection: Connection, row: dict[str, Any], definition: Step) -> list[Json]:
    """Return the attempts of a step, the first one first; its calls name theirs by number."""
    attempts: dict[int, Document] = {}
    for event in step_views.step_events(connection, row["task_id"], row["id"]):
        if event["type"] == "step.claimed":
            _begin(attempts, event)
        elif event["attempt"] in attempts:
            _apply(attempts[event["attempt"]], event)
    _add_configs(connection, row, definition, attempts)
    for approval in approval_rows.of_steps(connection, [row["id"]]):
        if approval.attempt in attempts:
            attempts[approval.attempt]["approvals"].append(_approval(approval))
    _add_logs(connection, row, attempts)
    last = attempts.get(row["attempt"])
    if last is not None and last["status"] == "succeeded":
        last["output"] = artifact_rows.load(connection, row["output"])
    return list(attempts.values())


def _begin(attempts: dict[int, Document], event: dict[str, Any]) -> None:
    """Begin an attempt, or go on with it after a wait."""
    attempt = attempts.setdefault(
        event["attempt"],
        {
            "attempt": event["attempt"],
            "started_at": to_iso(event["at"]),
            "config": None,
            "config_clipped": False,
            "executor": None,
            "open_gate": None,
            "output": None,
            "error": None,
            "traceback": None,
            "approvals": [],
            "waits": [],
            "log": [],
            "log_clipped": False,
        },
    )
    attempt.update(status="running", ended_at=None)


def _apply(attempt: Document, event: dict[str, Any]) -> None:
    kind, data, at = event["type"], _loaded(event["data"]) or {}, to_iso(event["at"])
    if kind == "step.waiting":
        attempt.update(status="waiting")
        attempt["waits"].append({"on": data.get("on"), "since": at, "until": None, "result": None})
    elif kind == "step.woken" and attempt["waits"]:
        attempt["waits"][-1].update(until=at, result=data or None)
    elif kind in _ENDINGS:
        attempt.update(status=_ENDINGS[kind], ended_at=at)
        reason = data.get("reason")
        attempt["error"] = data.get("error") or ({"message": reason} if reason else None)


def _add_configs(
    connection: Connection, row: dict[str, Any], definition: Step, attempts: dict[int, Document]
) -> None:
    is_group = definition.fanout is not None and row["parallel_index"] < 0
    if is_group:
        return
    if not _is_rendered(definition):
        for attempt in attempts.values():
            attempt["config"] = definition.config
        if definition.kind not in _WITH_EXECUTORS and "when" not in (definition.approval or {}):
            return
    limit = 4 * max(len(attempts), 1)
    for piece in step_views.step_configs(connection, row["task_id"], row["id"], limit):
        if piece["attempt"] in attempts:
            recorded = json.loads(piece["text"])
            if "open_gate" in recorded:
                attempts[piece["attempt"]]["open_gate"] = recorded["open_gate"]
                continue
            if "executor" in recorded:
                attempts[piece["attempt"]]["executor"] = recorded["executor"]
                continue
            attempts[piece["attempt"]].update(
                config=recorded["config"], config_clipped=recorded["clipped"]
            )


def _is_rendered(definition: Step) -> bool:
    if not definition.has_templates:
        return False
    # Imported here: the kinds take longer to load than a step without templates takes to show.
    from agent.steps.attempt import prepare
    from agent.steps.spec.registry import KINDS

    return prepare.is_rendered(definition, KINDS.get(definition.kind))


def _add_logs(connection: Connection, row: dict[str, Any], attempts: dict[int, Document]) -> None:
    pieces = step_views.step_log(connection, row["task_id"], row["id"], MAX_LOG_PIECES)
    for piece in pieces:
        attempt = attempts.get(piece["attempt"])
        if attempt is None:
            continue
        if piece["stream"] == _TRACEBACK:
            attempt["traceback"] = piece["text"]
        attempt["log"].append(
            {"at": to_iso(piece["at"]), "stream": piece["stream"], "text": piece["text"]}
        )
    if len(pieces) == MAX_LOG_PIECES and pieces[0]["attempt"] in attempts:
        attempts[pieces[0]["attempt"]]["log_clipped"] = True


def _approval(row: approval_rows.ApprovalRow) -> Document:
    return {
        "id": row.id,
        "kind": row.kind,
        "status": row.status,
        "message": row.message,
        "request": _loaded(row.request),
        "asked_at": to_iso(row.created_at),
        "decided_at": to_iso(row.decided_at),
        "by": row.decided_by,
        "channel": row.decided_channel,
        "comment": row.comment,
        "value": _loaded(row.value),
        "edits": _loaded(row.edits),
    }


def _loaded(text: str | None) -> Json:
    return json.loads(text) if text is not None else None
