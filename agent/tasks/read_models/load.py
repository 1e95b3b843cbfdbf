"""The load of an agent at this moment, as a document: what `agent top` shows."""

from typing import Final

from agent.config.settings import Settings
from agent.core.clock import SECOND, to_iso
from agent.steps.types.outcome import Json
from agent.store.db.database import Connection
from agent.store.engine import trigger_rows
from agent.store.read import health, load_rows
from agent.tasks.read_models import spending

MOST_STEPS: Final = 50


def load_document(connection: Connection, settings: Settings, now: int) -> dict[str, Json]:
    """Return workers, slots, the queue, the steps that run for longest, and today's spend."""
    workers = load_rows.workers(connection)
    count, oldest = load_rows.due(connection, now)
    next_at = trigger_rows.next_time(connection, "schedule")
    running = sum(int(row[4]) for row in workers)
    return {
        "at": to_iso(now),
        "workers": [
            {
                "id": worker_id,
                "host": host,
                "process_id": process_id,
                "started_at": to_iso(started_at),
                "running": steps,
            }
            for worker_id, host, process_id, started_at, steps in workers
        ],
        "slots": {"taken": running, "total": settings.engine.slots * len(workers)},
        "queue": {
            "due": count,
            "age_seconds": 0.0 if oldest is None else (now - oldest) / SECOND,
            "schedule_lag_seconds": 0.0 if next_at is None else max(0.0, (now - next_at) / SECOND),
        },
        "tasks": health.activity_counts(connection),
        "retried": health.retried_failures(connection),
        "steps": health.open_step_counts(connection),
        "questions": health.pending_approvals(connection),
        "unknown": len(health.unknown_calls(connection)),
        "slowest": [
            {
                "task": step.task_id,
                "workflow": step.workflow,
                "step": step.name + ("" if step.parallel_index < 0 else f"[{step.parallel_index}]"),
                "kind": step.kind,
                "attempt": step.attempt,
                "worker": step.worker,
                "seconds": (now - step.started_at) / SECOND,
            }
            for step in load_rows.longest_running(connection, MOST_STEPS)
        ],
        "spend": spending.day_document(connection, settings.budget, now),
    }
