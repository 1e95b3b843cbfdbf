"""A task for a caller that waits for it: how it ended, or what it needs to go on."""

from typing import Final

from agent.core.plain_json import Json
from agent.core.state_machine import TaskStatus
from agent.store.db.database import Connection
from agent.tasks.read_models import person_waits, task_documents

ENDED: Final = frozenset({TaskStatus.SUCCEEDED, TaskStatus.FAILED, TaskStatus.CANCELED})
_KEYS: Final = ("id", "workflow", "status", "activity", "output", "error", "waiting_on")


def result_document(connection: Connection, task_id: str) -> dict[str, Json]:
    """Return a task's result as far as there is one; `needs` is what only people and programs can do.

    A paused task needs someone too: the one who resumes it.
    """
    task = task_documents.task_document(connection, task_id)
    needs = [_need(task_id, wait) for wait in person_waits.waits_on_person(task)]
    if task["status"] == TaskStatus.PAUSED and not needs:
        needs = [_need(task_id, {"paused": task["pause_reason"]})]
    return {
        **{key: task[key] for key in _KEYS},
        "is_over": task["status"] in ENDED,
        "needs": needs,
    }


def _need(task_id: str, wait: dict[str, Json]) -> dict[str, Json]:
    """Return what a step waits for from outside, in one form for its kinds."""
    approval, signal = wait.get("approval"), wait.get("signal")
    if approval is not None:
        what, message = "answer", wait.get("message")
    elif signal is not None:
        what, message = "signal", f"it waits for the signal {signal!r}"
    elif "paused" in wait:
        what, message = "resume", wait["paused"] or "it is paused"
    else:
        what, message = "resolve", "the result of its effect is unknown"
    return {
        "what": what,
        "task": wait.get("task") or task_id,
        "step": wait.get("step"),
        "approval": approval,
        "signal": signal,
        "message": message,
    }
