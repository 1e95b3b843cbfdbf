"""The agent at a glance: running tasks, questions to people, and failures."""

from typing import Any, Final

from agent.approvals import approval_documents
from agent.config.settings import Settings
from agent.core.clock import SECOND, to_iso
from agent.core.state_machine import TaskStatus, TriggerStatus
from agent.store.channels import pairings
from agent.store.db.database import Connection
from agent.store.engine import trigger_rows
from agent.store.engine.trigger_rows import TriggerRow
from agent.store.read import health
from agent.store.read.task_list import TaskFilter
from agent.tasks.read_models import isolated_steps, spending, task_list

Document = dict[str, Any]

LATELY_SECONDS: Final = 86_400.0
"""Failures count for this long."""
_MOST: Final = 100
"""Entries of each kind that are read."""
_SHOWN: Final = 3
"""Entries of each kind that are returned."""


def overview_document(connection: Connection, settings: Settings, now: int) -> Document:
    """Return counts, and the first entries that need attention; the caller reads in one snapshot."""
    questions = approval_documents.list_approvals(connection, limit=_SHOWN)
    unknown = [
        {"task": task_id, "step": step, "action": action}
        for task_id, step, action in health.unknown_calls(connection)
    ]
    failed = _failed_lately(connection, now)
    rows = trigger_rows.all_rows(connection)
    return {
        "tasks": health.open_task_counts(connection),
        "questions": {
            "count": health.pending_approvals(connection),
            "first": _chosen(questions, "id", "task", "step", "message"),
        },
        "unknown": {"count": len(unknown), "first": unknown[:_SHOWN]},
        "failed": {
            "count": len(failed),
            "first": _chosen(failed, "id", "workflow", "ended_at"),
        },
        "schedules": _schedules(rows),
        "broken": _broken(rows),
        "isolated": isolated_steps.isolation(connection, settings.engine.solo_seconds, now),
        "paused": _paused_by_themselves(rows),
        "spend": spending.day_document(connection, settings.budget, now),
        "no_notices": no_notices(connection, settings),
    }


def no_notices(connection: Connection, settings: Settings) -> str | None:
    """Return why no notice would reach anyone; None if there is a way."""
    channels = settings.channels
    if settings.notify.operator or channels.webhook.url:
        return None
    used = channels.turned_on
    if any(account.channel in used for account in pairings.listed(connection)):
        return None
    if used:
        return "no account is paired: write to the bot, then `agent pair CODE`"
    return "no channel is configured, and `operator` in [notify] is empty"


def _failed_lately(connection: Connection, now: int) -> list[Document]:
    """Return the last failures, without those whose retry succeeded."""
    since = to_iso(now - int(LATELY_SECONDS * SECOND)) or ""
    failed = task_list.list_tasks(connection, TaskFilter(statuses=("failed",)), _MOST)
    return [
        task
        for task in failed
        if (task["ended_at"] or "") >= since
        and (task["retried_as"] or {}).get("status") != TaskStatus.SUCCEEDED
    ]


def _schedules(rows: list[TriggerRow]) -> Document:
    due = [
        (row.next_at, row.id)
        for row in rows
        if row.kind == "schedule" and row.status == TriggerStatus.ACTIVE and row.next_at is not None
    ]
    first = [{"id": name, "next_at": to_iso(at)} for at, name in sorted(due)[:_SHOWN]]
    return {"count": len(due), "first": first}


def _broken(rows: list[TriggerRow]) -> Document:
    """Return schedules and watchers with a broken file, with polls that fail, or without news for too long."""
    broken = []
    for row in rows:
        problem = row.problem or row.last_error
        if row.alert == "silent" and not problem:
            problem = "nothing new for longer than expect_every"
        if problem and row.status in (TriggerStatus.BROKEN, TriggerStatus.ACTIVE):
            broken.append({"id": row.id, "kind": row.kind, "problem": problem})
    return {"count": len(broken), "first": broken[:_SHOWN]}


def _paused_by_themselves(rows: list[TriggerRow]) -> Document:
    """Return schedules and watchers that paused because their tasks failed."""
    paused = [
        {"id": row.id, "kind": row.kind, "reason": row.pause_reason}
        for row in rows
        if row.is_paused_for(trigger_rows.FAILURES)
    ]
    return {"count": len(paused), "first": paused[:_SHOWN]}


def _chosen(entries: list[Document], *names: str) -> list[Document]:
    return [{name: entry[name] for name in names} for entry in entries[:_SHOWN]]
