"""A step's calls as documents: each with its request, its response and its cost."""

import json
from typing import Any, Final

from agent.core.clock import to_iso
from agent.core.money import MICROUSD
from agent.core.plain_json import Json
from agent.store.artifacts import artifact_rows
from agent.store.db.database import Connection
from agent.store.read import views
from agent.tasks.errors import NotFoundError

MODELLED: Final = frozenset({"llm", "agent"})
"""Kinds of steps that call models."""


def transcript(connection: Connection, task_id: str, step: str) -> dict[str, Json]:
    """Return all calls of a step in their order: of an agent, its whole conversation."""
    step_row = views.step_named(connection, task_id, step)
    if step_row is None:
        raise NotFoundError(f"task {task_id} has no step called {step!r}")
    calls = [
        call_document(connection, row)
        for row in views.calls(connection, task_id, step_id=step_row["id"])
    ]
    return {
        "task": task_id,
        "step": step,
        "kind": step_row["kind"],
        "status": step_row["status"],
        "attempt": step_row["attempt"],
        "calls": calls,
        "usage": usage(connection, task_id).get(step_row["id"], dict(_NOTHING)),
    }


def calls_after(connection: Connection, task_id: str, after: str) -> list[dict[str, Json]]:
    """Return the calls of steps that call models, those that began after one."""
    return [
        call_document(connection, row)
        for row in views.calls(connection, task_id, kinds=sorted(MODELLED), after=after)
    ]


_NOTHING: Final[dict[str, Json]] = {
    "turns": 0,
    "tools": 0,
    "tokens_in": 0,
    "tokens_out": 0,
    "usd": 0.0,
}


def usage(connection: Connection, task_id: str) -> dict[str, dict[str, Json]]:
    """Return what each step that made calls has used, by its id: turns, tools, tokens, money."""
    return {
        step_id: {
            "turns": turns,
            "tools": tools,
            "tokens_in": tokens_in,
            "tokens_out": tokens_out,
            "usd": microusd / MICROUSD,
        }
        for step_id, turns, tools, tokens_in, tokens_out, microusd in views.usage(
            connection, task_id
        )
    }


def total(used: list[dict[str, Json]]) -> dict[str, Json]:
    """Return what several steps have used together."""
    return {name: sum(usage[name] for usage in used) for name in _NOTHING}


def call_document(connection: Connection, row: dict[str, Any]) -> dict[str, Json]:
    """Return a call with its request, its response and its cost."""
    cost = row["cost_microusd"]
    return {
        "id": row["id"],
        "step": row["step_name"],
        "number": row["number"],
        "attempt": row["attempt"],
        "action": row["action"].partition("#")[0],
        "status": row["status"],
        "at": to_iso(row["created_at"]),
        "request": artifact_rows.load(connection, row["request"]),
        "response": artifact_rows.load(connection, row["response"]),
        "error": json.loads(row["error"]) if row["error"] is not None else None,
        "model": row["model"],
        "tokens_in": row["tokens_in"],
        "tokens_out": row["tokens_out"],
        "usd": None if cost is None else cost / MICROUSD,
        "latency_ms": row["latency_ms"],
        "stop_reason": row["stop_reason"],
        "request_id": row["request_id"],
        "idempotency_key": row["remote_key"],
    }
