"""Example documents of schedules and watchers."""

from typing import Any, Final

from agent.server.examples.identities import AT, TASK_ID

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
FIRINGS: Final = {"firings": [FIRING], "next": None}
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
    "status": "active",
    "is_first": False,
    "would": [
        {
            "key": "https://example.org/posts/21",
            "fate": "started",
            "reason": None,
            "item": {"title": "News", "link": "https://example.org/posts/21"},
        }
    ],
    "passed_over": None,
    "sample": {
        "key": "https://example.org/posts/21",
        "item": {"title": "News", "link": "https://example.org/posts/21"},
    },
}
