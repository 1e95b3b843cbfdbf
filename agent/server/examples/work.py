"""Example documents of external workers: claims, leases, queues, dead letters and snapshots."""

from typing import Any, Final

from agent.server.examples.identities import AT, LATER, TASK_ID

_WORK_ID: Final = "0199d2c4-9c11-7aa0-8f00-0c1d2e3f4a5b"
_SNAPSHOT_ID: Final = "0199d2c4-9d22-7bb0-8f00-0c1d2e3f4a5b"
CLAIMED_WORK: Final = {
    "work": [
        {
            "lease_id": f"{_WORK_ID}.{TASK_ID}.0.-1.8f000c1d2e3f4a5b",
            "id": _WORK_ID,
            "queue": "review",
            "state": "leased",
            "task": TASK_ID,
            "workflow": "invoice-triage",
            "step": "review",
            "parallel_index": None,
            "attempt": 1,
            "max_attempts": 3,
            "input": {"text": "…"},
            "checkpoint": None,
            "answer": None,
            "output_schema": None,
            "idempotency_key": None,
            "lease_seconds": 60.0,
            "lease_expires_at": LATER,
            "start_by": LATER,
            "run_by": None,
            "snapshot": None,
        }
    ]
}
LEASE_STATE: Final = {"action": "continue", "lease_expires_at": LATER, "snapshot": None}
ENDED_LEASE: Final = {
    "step": "succeeded",
    "task": TASK_ID,
    "is_late": False,
    "approval": None,
    "snapshot": None,
    "work": None,
}
KEPT_ARTIFACT: Final = {
    "hash": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "size": 17,
    "name": "rows",
}
APPENDED_SNAPSHOT: Final = {"snapshot": _SNAPSHOT_ID}
SNAPSHOT: Final[dict[str, Any]] = {
    "id": _SNAPSHOT_ID,
    "task": TASK_ID,
    "step": "review",
    "parent": None,
    "label": "plan",
    "value": {"plan": ["read", "sum up"]},
    "by": "worker:host:4711",
    "created_at": AT,
}
SNAPSHOTS: Final = {"snapshots": [SNAPSHOT], "next": None}
QUEUES: Final = {
    "queues": [
        {
            "queue": "review",
            "queued": 3,
            "leased": 0,
            "running": 1,
            "asked": 0,
            "dead": 0,
            "oldest_at": AT,
            "claimants": ["host:4711"],
            "leases": [
                {
                    "id": _WORK_ID,
                    "task": TASK_ID,
                    "step": "review",
                    "parallel_index": None,
                    "worker": "host:4711",
                    "state": "running",
                    "attempt": 1,
                    "leased_at": AT,
                    "started_at": AT,
                    "expires_at": LATER,
                }
            ],
        }
    ]
}
_OVER: Final = {
    "id": _WORK_ID,
    "task": TASK_ID,
    "queue": "review",
    "step": "review",
    "parallel_index": None,
    "worker": "host:4711",
    "attempt": 1,
}
CHECKED_LEASES: Final = {
    "expired": [_OVER],
    "kept": [{**_OVER, "reason": "its task is paused", "expires_at": None}],
    "has_more": False,
}
DEAD_LETTERS: Final = {
    "dead": [
        {
            "id": _WORK_ID,
            "task": TASK_ID,
            "workflow": "invoice-triage",
            "step": "review",
            "parallel_index": None,
            "queue": "review",
            "attempts": 3,
            "error": {
                "code": "heartbeat_timeout",
                "class": "timeout",
                "message": "…",
                "attempt": 3,
            },
            "failed_at": LATER,
        }
    ],
    "next": None,
}
WORK_COMMAND: Final = {"changed": True, "message": f"retried as {TASK_ID}", "task_id": TASK_ID}
