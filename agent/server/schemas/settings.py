"""What the routes about the running agent return."""

from typing import Any, Final

from pydantic import Field

from agent.server.examples.identities import APPROVAL_ID, AT, TASK_ID
from agent.server.schemas.base import ResponseDocument, with_example

_STATUS: Final = {
    "version": "1.0.0",
    "started_at": AT,
    "tasks": {"running": 2, "waiting": 1},
    "questions": {
        "count": 1,
        "first": [
            {
                "id": APPROVAL_ID,
                "task": TASK_ID,
                "step": "send",
                "message": "Send the invoice?",
            }
        ],
    },
    "unknown": {"count": 0, "first": []},
    "failed": {
        "count": 1,
        "first": [{"id": TASK_ID, "workflow": "triage", "ended_at": AT}],
    },
    "schedules": {"count": 1, "first": [{"id": "backup/nightly", "next_at": AT}]},
    "broken": {"count": 0, "first": []},
    "isolated": {
        "task": TASK_ID,
        "workflow": "triage",
        "step": "read",
        "until": AT,
        "following": 2,
    },
    "paused": {"count": 0, "first": []},
    "spend": {
        "day": "2026-01-05",
        "tokens": 4480,
        "tokens_limit": None,
        "usd": 0.0218,
        "usd_limit": 5.0,
        "seconds": 12.5,
        "seconds_limit": None,
    },
    "no_notices": None,
}


class ReloadDocument(ResponseDocument):
    """What a reload of the configuration did."""

    model_config = with_example(
        {"applied": ["engine.slots"], "needs_restart": ["server.port"], "at": AT}
    )

    applied: list[str] = Field(description="the keys whose new values are in force")
    needs_restart: list[str] = Field(description="the keys whose old values are in force")
    at: str


class StatusDocument(ResponseDocument):
    """The agent at a glance: what runs, what waits for a person, and what went wrong."""

    model_config = with_example(_STATUS)

    version: str
    started_at: str | None = None
    tasks: dict[str, int] = Field(description="how many have not ended, by activity")
    questions: dict[str, Any]
    unknown: dict[str, Any] = Field(description="effects whose result was never recorded")
    failed: dict[str, Any] = Field(description="tasks that failed in the last day")
    schedules: dict[str, Any] = Field(description="the next to fire")
    broken: dict[str, Any] = Field(
        description="schedules and watchers with a broken file, that fail or that are silent"
    )
    isolated: dict[str, Any] | None = Field(
        default=None,
        description="the step that runs alone after a crash, or that waits to; no other step starts"
        " meanwhile",
    )
    paused: dict[str, Any] = Field(
        description="schedules and watchers that paused because their tasks failed"
    )
    spend: dict[str, Any] = Field(description="what models used today, and the limits")
    no_notices: str | None = Field(
        default=None, description="why no notice would reach anyone; null if there is a way"
    )
