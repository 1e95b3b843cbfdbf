"""What the waits of steps do not store: questions to people, those of children, and who has the work."""

import json
from collections.abc import Iterable
from itertools import groupby
from typing import Any

from agent.core import waits
from agent.core.clock import to_iso
from agent.core.plain_json import Json
from agent.core.state_machine import StepStatus, TaskStatus
from agent.core.waits import Child, Items, Wait, Work
from agent.store.db.database import Connection
from agent.store.engine import approval_rows
from agent.store.read import views, work_views

Document = dict[str, Json]


def wait_document(row: dict[str, Any]) -> Document | None:
    """Return what a step's row says that it waits on; None unless it waits."""
    if row["status"] != StepStatus.WAITING or row["waiting_on"] is None:
        return None
    document: Document = json.loads(row["waiting_on"])
    return document


def wait_of(step: Document) -> Wait | None:
    """Return what the document of a step says that it waits on."""
    return waits.from_document(step["waiting_on"] or {})


def add_questions(connection: Connection, task_id: str, steps: list[Document]) -> None:
    """Add to steps that wait on a person what they ask."""
    waiting = [
        (approval_id, step["waiting_on"])
        for step in steps
        if (approval_id := waits.approval_of(wait_of(step))) is not None
    ]
    if not waiting:
        return
    approvals = approval_rows.listed(connection, is_all=False, task_id=task_id, limit=len(steps))
    by_id = {row.id: row for row, *_ in approvals}
    for approval_id, on in waiting:
        row = by_id.get(approval_id)
        if row is not None:
            on.update(kind=row.kind, message=row.message, expires_at=to_iso(row.expires_at))
            on.update(_requests(row))


def add_workers(connection: Connection, steps: list[Document]) -> None:
    """Add to steps that wait on an external worker which one has the work, if one has."""
    waiting = [
        (on.work_id, step["waiting_on"])
        for step in steps
        if isinstance(on := wait_of(step), Work) and on.approval_id is None
    ]
    if not waiting:
        return
    leases = work_views.lease_holders(connection, [work_id for work_id, _ in waiting])
    for work_id, document in waiting:
        document["state"], document["worker"] = leases.get(work_id, (None, None))


def _requests(row: approval_rows.ApprovalRow) -> Document:
    """Return what an unknown effect was and what would be done now, where the two differ."""
    request = json.loads(row.request) if row.kind == "unknown" else {}
    if "now" not in request:
        return {}
    was = {"action": request["action"], "request": request["request"]}
    return {"was": was, "now": request["now"]}


def add_childrens(connection: Connection, task_id: str, status: str, steps: list[Document]) -> None:
    """Add to steps that wait on a child what that child asks of people."""
    waiting = [
        (on.task_id, step["waiting_on"])
        for step in steps
        if isinstance(on := wait_of(step), Child) and on.task_id is not None
    ]
    if not waiting:
        return
    rows = views.open_family(connection, task_id)
    by_task = {task: list(own) for task, own in groupby(rows, key=lambda row: row["task_id"])}
    for child_id, document in waiting:
        asks = _asks_of(connection, child_id, status, by_task)
        if asks:
            document["asks"] = asks


def _asks_of(
    connection: Connection, task_id: str, parent_status: str, by_task: dict[str, list[Any]]
) -> list[Document]:
    """Return what a child asks of people, its own children's included; none while it can go on."""
    rows = by_task.get(task_id, [])
    status = rows[0]["task_status"] if rows else None
    if status not in (TaskStatus.RUNNING, TaskStatus.PAUSED):
        return []
    steps = [_open_step(row) for row in rows if row["name"] is not None]
    # Resuming a task resumes its children: only one that was paused by itself has to be resumed.
    if status == TaskStatus.PAUSED and parent_status != TaskStatus.PAUSED:
        is_at_work = any(step["status"] == StepStatus.RUNNING for step in steps)
        return [] if is_at_work else [_paused(task_id, rows[0])]
    add_questions(connection, task_id, steps)
    for step in steps:
        on = wait_of(step)
        if isinstance(on, Child) and on.task_id is not None:
            step["waiting_on"]["asks"] = _asks_of(connection, on.task_id, status, by_task)
    return [{"task": task_id, **ask} for ask in _asks(steps)]


def _paused(task_id: str, row: dict[str, Any]) -> Document:
    """Return that a child is paused; `command` resumes it where `resume` alone would not."""
    command = {"command": row["pause_command"]} if row["pause_command"] else {}
    return {"task": task_id, "paused": row["pause_reason"] or "", **command}


def _open_step(row: dict[str, Any]) -> Document:
    is_item = row["parallel_index"] >= 0
    return {
        "name": f"{row['name']}[{row['parallel_index']}]" if is_item else row["name"],
        "status": row["status"],
        "waiting_on": wait_document(row),
    }


def waits_on_person(document: Document) -> list[Document]:
    """Return what in a task waits for a person to answer or a signal to be sent.

    What a child waits for names that child as its `task`.
    """
    if document["status"] not in (TaskStatus.RUNNING, TaskStatus.PAUSED):
        return []
    return _asks(
        step
        for step in document["steps"]
        if step["status"] != StepStatus.PENDING or step["wake_at"] is not None
    )


def _asks(steps: Iterable[Document]) -> list[Document]:
    """Return what open steps ask of people; nothing while one of them can go on by itself."""
    asks: list[Document] = []
    for step in steps:
        if step["status"] in (StepStatus.RUNNING, StepStatus.PENDING):
            return []
        on = wait_of(step)
        if step["status"] != StepStatus.WAITING or isinstance(on, Items):
            continue
        document = step["waiting_on"] or {}
        if document.get("asks"):
            asks += document["asks"]
        elif waits.asks_person(on):
            asks.append({"step": step["name"], **document})
        else:
            return []
    return asks
