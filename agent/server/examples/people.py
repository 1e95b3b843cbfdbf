"""Example documents of approvals and conversations."""

from typing import Any, Final

from agent.server.examples.identities import APPROVAL_ID, AT, TASK_ID

CONVERSATIONS: Final = {
    "conversations": [
        {
            "id": "telegram:123",
            "entries": 12,
            "tokens": 840,
            "summaries": 0,
            "first_at": AT,
            "last_at": AT,
        }
    ]
}
CONVERSATION: Final = {
    "id": "telegram:123",
    "entries": [
        {
            "number": 1,
            "role": "user",
            "text": "What is running?",
            "task": TASK_ID,
            "tokens": 4,
            "covers_until": None,
            "at": AT,
        }
    ],
    "next": None,
}
ANSWERED: Final = {
    "approval": APPROVAL_ID,
    "task": TASK_ID,
    "step": "pay",
    "status": "approved",
    "message": f"approved: step pay of task {TASK_ID}",
}
APPROVAL: Final[dict[str, Any]] = {
    "id": APPROVAL_ID,
    "kind": "approval",
    "status": "pending",
    "task": TASK_ID,
    "task_status": "running",
    "workflow": "invoice-triage",
    "step": "pay",
    "attempt": 1,
    "message": "Pay 12.50 to Example Ltd?",
    "request": {"kind": "shell", "config": {"argv": ["paycli", "send", "Example Ltd", "12.50"]}},
    "request_hash": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "choices": None,
    "schema": None,
    "editable": ["argv"],
    "who": [],
    "created_at": AT,
    "expires_at": None,
    "on_expiry": "fail",
    "remind_at": None,
    "renews": None,
    "decision": None,
}
APPROVALS: Final = {"approvals": [APPROVAL], "next": None}
