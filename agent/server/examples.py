"""Example responses for the OpenAPI description; a test checks them against the schemas."""

from typing import Any, Final

TASK_ID: Final = "0199d2c4-7d5e-7c31-9d0f-3f1f7b6c2a10"
APPROVAL_ID: Final = "0199d2c4-8a02-7f10-8c4e-5b1d2e3f4a5b"
AT: Final = "2026-03-01T08:00:00.000Z"
_LATER: Final = "2026-03-01T08:00:02.340Z"

CREATED: Final = {
    "id": TASK_ID,
    "workflow": "invoice-triage",
    "url": f"/api/v1/tasks/{TASK_ID}",
}
COMMAND: Final = {"changed": True, "message": "paused", "task_id": TASK_ID}
STEP: Final[dict[str, Any]] = {
    "name": "fetch",
    "index": 0,
    "parallel_index": None,
    "parallel_count": None,
    "kind": "http",
    "status": "succeeded",
    "attempt": 1,
    "max_attempts": 4,
    "waiting_on": None,
    "delay": None,
    "wake_at": None,
    "output": {"status": 200, "headers": {}, "body": "…"},
    "error": None,
    "skip_reason": None,
    "depends_on": [],
    "item": None,
    "usage": None,
    "state": None,
    "started_at": AT,
    "ended_at": _LATER,
}
SUMMARY: Final[dict[str, Any]] = {
    "id": TASK_ID,
    "workflow": "invoice-triage",
    "version": 3,
    "status": "succeeded",
    "activity": "succeeded",
    "priority": "normal",
    "created_at": AT,
    "started_at": AT,
    "ended_at": _LATER,
    "error": None,
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
STEPS: Final = {"steps": [STEP]}
TRANSCRIPT: Final[dict[str, Any]] = {
    "task": TASK_ID,
    "step": "read",
    "kind": "llm",
    "status": "succeeded",
    "attempt": 1,
    "calls": [
        {
            "id": TASK_ID,
            "step": "read",
            "number": 1,
            "attempt": 1,
            "action": "model",
            "status": "succeeded",
            "at": AT,
            "request": {"prompt": "Extract vendor and amount from …"},
            "response": {"text": '{"vendor": "Example Ltd"}', "stop_reason": "end"},
            "error": None,
            "model": "some-model",
            "tokens_in": 412,
            "tokens_out": 61,
            "usd": 0.002151,
            "latency_ms": 2310,
            "stop_reason": "end",
            "request_id": "req_1",
        }
    ],
    "usage": {"turns": 1, "tools": 0, "tokens_in": 412, "tokens_out": 61, "usd": 0.002151},
}
STEP_INSPECTION: Final[dict[str, Any]] = {
    "task": TASK_ID,
    "workflow": "invoice-triage",
    "version": 3,
    "step": "lines[3]",
    "kind": "python",
    "status": "succeeded",
    "attempt": 1,
    "max_attempts": 3,
    "parallel_index": 3,
    "parallel_count": 8,
    "item": {"amount": 12.5},
    "depends_on": ["fetch"],
    "definition": {"call": "my_steps:check", "with": {"line": "{{ item }}"}},
    "kept_from": None,
    "waiting_on": None,
    "wake_at": None,
    "skip_reason": None,
    "output": {"ok": True},
    "error": None,
    "started_at": AT,
    "ended_at": _LATER,
    "state": None,
    "usage": None,
    "latest_version": 3,
    "changed_code": [],
    "calls": [],
    "items": [],
    "attempts": [
        {
            "attempt": 1,
            "status": "succeeded",
            "started_at": AT,
            "ended_at": _LATER,
            "config": {"call": "my_steps:check", "with": {"line": {"amount": 12.5}}},
            "config_clipped": False,
            "executor": None,
            "output": {"ok": True},
            "error": None,
            "traceback": None,
            "approvals": [],
            "waits": [],
            "log": [{"at": AT, "stream": "stdout", "text": "checked 1 line"}],
            "log_clipped": False,
        }
    ],
}
LOGS: Final = {
    "logs": [
        {
            "id": 7,
            "step": "fetch",
            "attempt": 1,
            "at": AT,
            "stream": "stdout",
            "text": "3 invoices\n",
        }
    ],
    "next": 7,
}
EVENT: Final = {
    "cursor": "0-1204",
    "task": TASK_ID,
    "seq": 4,
    "type": "step.succeeded",
    "step": "fetch",
    "attempt": 1,
    "at": AT,
    "data": None,
}
EVENTS: Final = {"events": [EVENT], "cursor": "0-1204"}
WORKFLOW_SUMMARY: Final[dict[str, Any]] = {
    "name": "hello",
    "version": 1,
    "description": None,
    "file": None,
    "tasks": 12,
    "tool": None,
    "created_at": AT,
    "removed_at": None,
}
VALIDATION: Final = {
    "valid": False,
    "workflow": None,
    "problems": [
        {
            "file": "workflow.yaml",
            "line": 3,
            "column": 3,
            "key": "steps.greet",
            "message": "there is no key 'shel'",
            "hint": "did you mean 'shell'?",
        }
    ],
}
WORKFLOWS: Final = {"workflows": [WORKFLOW_SUMMARY]}
WORKFLOW: Final = {
    **WORKFLOW_SUMMARY,
    "graph": {"name": "hello", "steps": [{"name": "greet", "kind": "shell"}]},
    "source": "name: hello\nsteps:\n  greet: {shell: {argv: [echo, hello], effect: none}}\n",
    "versions": [{"version": 1, "created_at": AT, "removed_at": None, "file": None, "tasks": 12}],
}
CALLS: Final = {"calls": TRANSCRIPT["calls"]}
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
BUDGET: Final = {
    "task": TASK_ID,
    "calls": 3,
    "tokens_in": 4100,
    "tokens_out": 380,
    "usd": 0.0218,
    "usd_of_unknown_calls": 0.0,
    "budgets": [
        {
            "step": None,
            "tokens": 4480,
            "tokens_limit": 200000,
            "usd": 0.0218,
            "usd_limit": 0.5,
        }
    ],
}
DAY: Final = {
    "day": AT[:10],
    "tokens": 51200,
    "tokens_limit": None,
    "usd": 0.2473,
    "usd_limit": 5.0,
    "seconds": 412.7,
    "seconds_limit": 3600.0,
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
HOOK: Final = {"task": TASK_ID}
PROBLEM: Final = {
    "type": "urn:agent:problem:refused",
    "title": "Not allowed in this state",
    "status": 409,
    "detail": "nothing to pause: the task succeeded",
}
METRICS: Final = """\
# HELP agent_tasks Tasks by status.
# TYPE agent_tasks gauge
agent_tasks{status="running"} 3
"""
FIRING: Final[dict[str, Any]] = {
    "key": AT,
    "status": "started",
    "reason": None,
    "nominal_at": AT,
    "due_at": AT,
    "until_at": None,
    "count": None,
    "task": TASK_ID,
    "recorded_at": AT,
}
TRIGGER_SUMMARY: Final[dict[str, Any]] = {
    "id": "report:daily",
    "workflow": "report",
    "version": 3,
    "name": "daily",
    "kind": "schedule",
    "status": "active",
    "pause_reason": None,
    "paused_until": None,
    "problem": None,
    "timezone": "Europe/Berlin",
    "next_at": "2026-03-02T08:00:00.000Z",
    "when": "cron 0 9 * * *",
    "recent": [FIRING],
    "last_at": AT,
}
TRIGGER: Final[dict[str, Any]] = {
    **TRIGGER_SUMMARY,
    "definition": {"id": "daily", "cron": "0 9 * * *", "timezone": "Europe/Berlin"},
    "upcoming": ["2026-03-02T08:00:00.000Z", "2026-03-03T08:00:00.000Z"],
    "queued": 0,
    "created_at": AT,
    "removed_at": None,
    "resumed_at": None,
    "firings": [FIRING],
}
TRIGGERS: Final = {"triggers": [TRIGGER_SUMMARY], "next": None}
_STATE_VERSION: Final[dict[str, Any]] = {
    "version": 4,
    "value": 199.5,
    "deleted": False,
    "written_by": "compare",
    "task": TASK_ID,
    "written_at": AT,
}
STATE_VALUE: Final[dict[str, Any]] = {
    "id": "workflow:price-watch/last_price",
    "scope": "workflow:price-watch",
    "workflow": "price-watch",
    "name": "last_price",
    **_STATE_VERSION,
}
STATE_HISTORY: Final = {**STATE_VALUE, "history": [_STATE_VERSION]}
STATE: Final = {"state": [STATE_VALUE], "next": None}
STATE_ANSWER: Final = {
    "changed": True,
    "message": "last_price in the state of workflow 'price-watch' set, version 5",
    "version": 5,
}
FIRINGS: Final = {"firings": [FIRING], "next": None}
MEMORY: Final = {
    "id": 17,
    "scope": "personal",
    "text": "Anna likes green tea",
    "written_by": "agent",
    "task": TASK_ID,
    "step": "chat",
    "created_at": AT,
    "forgotten_at": None,
}
MEMORIES: Final = {"memories": [MEMORY], "next": None}
TRIGGER_COMMAND: Final = {
    "changed": True,
    "message": "skipped 2026-03-02 09:00 CET; next is 2026-03-03 09:00 CET",
    "trigger_id": "report:daily",
    "tasks": [],
    "instants": ["2026-03-02T08:00:00.000Z"],
}
TRIGGER_CHECK: Final = {
    "id": "inbox:new",
    "source": "feed",
    "found": 20,
    "known": 19,
    "is_first": False,
    "would": [
        {
            "key": "https://example.org/posts/21",
            "fate": "started",
            "reason": None,
            "item": {"title": "News", "link": "https://example.org/posts/21"},
        }
    ],
}
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
            "lease_expires_at": _LATER,
            "start_by": _LATER,
            "run_by": None,
            "snapshot": None,
        }
    ]
}
LEASE_STATE: Final = {"action": "continue", "lease_expires_at": _LATER, "snapshot": None}
ENDED_LEASE: Final = {
    "step": "succeeded",
    "task": TASK_ID,
    "is_late": False,
    "approval": None,
    "snapshot": None,
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
                    "expires_at": _LATER,
                }
            ],
        }
    ]
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
            "failed_at": _LATER,
        }
    ],
    "next": None,
}
WORK_COMMAND: Final = {"changed": True, "message": f"retried as {TASK_ID}", "task_id": TASK_ID}
