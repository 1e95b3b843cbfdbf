"""What tasks wait on that somebody has to do, in themselves and in their children."""

import json
from collections.abc import Iterable
from itertools import groupby
from typing import Any

from agent.core.clock import to_iso
from agent.core.state_machine import StepStatus, TaskStatus
from agent.steps.types.outcome import Json
from agent.store.db.database import Connection
from agent.store.engine import approvals
from agent.store.read import views


def add_questions(connection: Connection, task_id: str, steps: list[dict[str, Json]]) -> None:
    """Say of steps that wait on a person what they ask."""
    waiting = [step["waiting_on"] for step in steps if "approval" in (step["waiting_on"] or {})]
    if not waiting:
        return
    found = approvals.listed(connection, is_all=False, task_id=task_id, limit=len(steps))
    asked = {row.id: row for row, *_ in found}
    for on in waiting:
        row = asked.get(on["approval"])
        if row is not None:
            on.update(kind=row.kind, message=row.message, expires_at=to_iso(row.expires_at))
            on.update(_requests(row))


def _requests(row: approvals.ApprovalRow) -> dict[str, Json]:
    """Return what an unknown effect was and what would be done now, where the two differ."""
    request = json.loads(row.request) if row.kind == "unknown" else {}
    if "now" not in request:
        return {}
    was = {"action": request["action"], "request": request["request"]}
    return {"was": was, "now": request["now"]}


def add_childrens(
    connection: Connection, task_id: str, status: str, steps: list[dict[str, Json]]
) -> None:
    """Say of steps that wait on a child what that child waits on, where it is a person's turn."""
    waiting = [
        on for step in steps if isinstance((on := step["waiting_on"] or {}).get("child"), str)
    ]
    if not waiting:
        return
    rows = views.living_family(connection, task_id)
    by_task = {task: list(each) for task, each in groupby(rows, key=lambda row: row["task_id"])}
    for on in waiting:
        asks = _asks_of(connection, on["child"], status, by_task)
        if asks:
            on["asks"] = asks


def _asks_of(
    connection: Connection, task_id: str, parent_status: str, by_task: dict[str, list[Any]]
) -> list[dict[str, Json]]:
    """Return what a child asks of people, its own children's included; none while it can go on."""
    rows = by_task.get(task_id, [])
    status = rows[0]["task_status"] if rows else None
    if status not in (TaskStatus.RUNNING, TaskStatus.PAUSED):
        return []
    steps = [_opened(row) for row in rows if row["name"] is not None]
    # Resuming a task resumes its children: only one that was paused by itself has to be told.
    if status == TaskStatus.PAUSED and parent_status != TaskStatus.PAUSED:
        is_at_work = any(step["status"] == StepStatus.RUNNING for step in steps)
        return [] if is_at_work else [{"task": task_id, "paused": rows[0]["pause_reason"] or ""}]
    add_questions(connection, task_id, steps)
    for step in steps:
        on = step["waiting_on"] or {}
        if isinstance(on.get("child"), str):
            on["asks"] = _asks_of(connection, on["child"], status, by_task)
    return [{"task": task_id, **ask} for ask in _asks(steps)]


def _opened(row: dict[str, Any]) -> dict[str, Json]:
    is_item = row["parallel_index"] >= 0
    waits = row["status"] == StepStatus.WAITING and row["waiting_on"] is not None
    return {
        "name": f"{row['name']}[{row['parallel_index']}]" if is_item else row["name"],
        "status": row["status"],
        "waiting_on": json.loads(row["waiting_on"]) if waits else None,
    }


def waits_on_person(document: dict[str, Json]) -> list[dict[str, Json]]:
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


def _asks(steps: Iterable[dict[str, Json]]) -> list[dict[str, Json]]:
    """Return what open steps ask of people; nothing while one of them can go on by itself."""
    asks: list[dict[str, Json]] = []
    for step in steps:
        on = step["waiting_on"] or {}
        if step["status"] in (StepStatus.RUNNING, StepStatus.PENDING):
            return []
        if step["status"] != StepStatus.WAITING or "items" in on:
            continue
        if on.get("asks"):
            asks += on["asks"]
        elif any(kind in on for kind in views.ASKING):
            asks.append({"step": step["name"], **on})
        else:
            return []
    return asks
