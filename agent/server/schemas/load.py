"""What the route of the load returns."""

from typing import Any, Final

from pydantic import Field

from agent.server.examples import operation as operation_examples
from agent.server.examples.identities import AT, TASK_ID
from agent.server.schemas.base import Instant, ResponseDocument, with_example

_EXAMPLE: Final[dict[str, Any]] = {
    "at": AT,
    "workers": [
        {
            "id": "0199d2c4-7d5e-7c31-9d0f-3f1f7b6c2a11",
            "host": "home",
            "process_id": 4711,
            "started_at": AT,
            "running": 1,
        }
    ],
    "slots": {"taken": 1, "total": 50},
    "queue": {"due": 0, "age_seconds": 0.0, "schedule_lag_seconds": 0.0},
    "tasks": {"running": 1, "succeeded": 20},
    "retried": 0,
    "steps": {"running": 1, "pending": 2},
    "questions": 0,
    "unknown": 0,
    "slowest": [
        {
            "task": TASK_ID,
            "workflow": "invoice-triage",
            "step": "pay",
            "kind": "http",
            "attempt": 1,
            "worker": "0199d2c4-7d5e-7c31-9d0f-3f1f7b6c2a11",
            "seconds": 1.5,
        }
    ],
    "spend": operation_examples.DAY,
}


class LoadDocument(ResponseDocument):
    """Workers, slots, the queue, the steps that run for longest, and today's spend."""

    model_config = with_example(_EXAMPLE)

    at: Instant
    workers: list[dict[str, Any]]
    slots: dict[str, int]
    queue: dict[str, float]
    tasks: dict[str, int] = Field(description="by status")
    retried: int = Field(description="of the failed ones, those whose retry succeeded")
    steps: dict[str, int] = Field(description="by status, of tasks that have not ended")
    questions: int
    unknown: int
    slowest: list[dict[str, Any]] = Field(description="the steps that have run for longest")
    spend: dict[str, Any] = Field(description="as GET /budget returns it")
