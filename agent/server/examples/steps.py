"""Example documents of steps: inspections, calls, logs and events."""

from typing import Any, Final

from agent.server.examples.identities import AT, LATER, TASK_ID

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
    "ended_at": LATER,
}
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
            "idempotency_key": "5d8a0f1b9c3e47a2",
        }
    ],
    "usage": {"turns": 1, "tools": 0, "tokens_in": 412, "tokens_out": 61, "usd": 0.002151},
}
STEP_INSPECTION: Final[dict[str, Any]] = {
    "task": TASK_ID,
    "task_status": "succeeded",
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
    "ended_at": LATER,
    "state": None,
    "usage": None,
    "latest_version": 3,
    "changed_code": [],
    "unknown_effects": [],
    "calls": [],
    "children": [],
    "items": [],
    "attempts": [
        {
            "attempt": 1,
            "status": "succeeded",
            "started_at": AT,
            "ended_at": LATER,
            "config": {"call": "my_steps:check", "with": {"line": {"amount": 12.5}}},
            "config_clipped": False,
            "executor": None,
            "open_gate": None,
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
CALLS: Final = {"calls": TRANSCRIPT["calls"]}
