"""Example documents of tasks, of requests that start them, and of commands."""

from typing import Any, Final

from agent.server.examples.identities import APPROVAL_ID, AT, LATER, TASK_ID
from agent.server.examples.steps import STEP

CREATED: Final = {
    "id": TASK_ID,
    "workflow": "invoice-triage",
    "url": f"/api/v1/tasks/{TASK_ID}",
}
COMMAND: Final = {"changed": True, "message": "paused", "task_id": TASK_ID}
SUMMARY: Final[dict[str, Any]] = {
    "id": TASK_ID,
    "workflow": "invoice-triage",
    "version": 3,
    "status": "succeeded",
    "activity": "succeeded",
    "priority": "normal",
    "created_at": AT,
    "started_at": AT,
    "ended_at": LATER,
    "error": None,
    "retried_as": None,
    "pause_reason": None,
    "pause_kind": None,
    "pause_command": None,
}
TASK: Final[dict[str, Any]] = {
    **SUMMARY,
    "waiting_on": [],
    "current_step": None,
    "input": {"max_amount": 250},
    "output": {"vendor": "Example Ltd"},
    "trigger": {"kind": "api", "by": "owner"},
    "deadline": None,
    "next_wake_time": None,
    "parent": None,
    "retry_of": None,
    "forked_from": None,
    "origin": TASK_ID,
    "chat_origin": None,
    "children": [],
    "unknown_effects": [],
    "usage": {"turns": 1, "tools": 0, "tokens_in": 412, "tokens_out": 61, "usd": 0.002151},
    "latest_version": 3,
    "changed_code": [],
    "steps": [STEP],
}
RESULT: Final[dict[str, Any]] = {
    "id": TASK_ID,
    "workflow": "invoice-triage",
    "status": "running",
    "activity": "waiting",
    "is_over": False,
    "output": None,
    "error": None,
    "needs": [
        {
            "what": "answer",
            "task": TASK_ID,
            "step": "pay",
            "approval": APPROVAL_ID,
            "signal": None,
            "message": "Pay 250?",
        }
    ],
    "waiting_on": [{"step": "pay", "approval": APPROVAL_ID}],
}
LISTED: Final[dict[str, Any]] = {
    **SUMMARY,
    "status": "running",
    "activity": "waiting",
    "ended_at": None,
    "input_preview": "max_amount=250",
    "trigger": {"kind": "api", "id": None},
    "parent": None,
    "waiting_for": [{"count": 1, "what": "signal", "name": "go"}],
    "waits": 1,
    "signal": "go",
    "delay": None,
}
TASKS: Final = {"tasks": [LISTED], "next": None, "total": 1, "searched": None}
HOOK: Final = {"task": TASK_ID}
