"""Health: problems with advice, then workers, channels, queue and database."""

import shutil
from dataclasses import dataclass
from typing import Any, Final

from agent import __version__
from agent.channels.health_checks import NOTICES, channel_checks
from agent.core.clock import to_iso
from agent.server.context import Context
from agent.server.monitoring.metrics import DatabaseGauges, read_gauges
from agent.server.pages.framework.page_registry import PageRegistry
from agent.server.pages.framework.page_request import PageRequest
from agent.server.pages.framework.templates import sentence
from agent.store.channels import cursors
from agent.store.db.database import Connection
from agent.store.read import health
from agent.tasks.read_models import isolated_steps
from agent.triggers.health_checks import trigger_checks
from agent.workflows.directory import Entry

Document = dict[str, Any]

pages = PageRegistry("health")

EVERY_SECONDS: Final = 10
_MOST_WORKERS: Final = 10
_MOST_FINDINGS: Final = 50
_LONG_TRANSACTION_SECONDS: Final = 300.0
_LONG_QUEUE_SECONDS: Final = 60.0
_LITTLE_SPACE_BYTES: Final = 500 * 1024 * 1024
_MOST_BEHIND: Final = 10_000
_MOST_TASKS: Final = 10_000
"""Of each status: counting all would take longer the more there are."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, or well: `state` is ok, warning or error."""

    what: str
    state: str
    message: str
    href: str = ""


@pages.page("/health", "health.html", every_seconds=EVERY_SECONDS)
def health_page(connection: Connection, request: PageRequest) -> Document:
    """Return the findings that `agent doctor` would have here, and the state of every part."""
    context = request.context
    clock = context.database.clock
    gauges = read_gauges(connection, clock, _MOST_TASKS)
    now = clock.now()
    reaching = [
        Finding(what.removeprefix("channel "), state, message)
        for what, state, message in channel_checks(context.settings, connection, is_running=True)
    ]
    # Without a way to reach anyone there is a finding, and no channel.
    channels = [finding for finding in reaching if finding.what != NOTICES]
    triggers = [
        Finding("triggers", state, message, "/triggers")
        for state, message in trigger_checks(connection, now, is_running=True)
    ]
    findings = [*_findings(connection, context, gauges), *reaching, *triggers]
    return {
        "version": __version__,
        "findings": [finding for finding in findings if finding.state != "ok"][:_MOST_FINDINGS],
        "gauges": gauges,
        "most_tasks": _MOST_TASKS,
        "channels": [(channel, _behind(connection, channel.what)) for channel in channels],
        "workers": [
            row | {"started_at": to_iso(row["started_at"]), "ended_at": to_iso(row["ended_at"])}
            for row in health.worker_rows(connection, _MOST_WORKERS)
        ],
        "database": _database(connection, context),
    }


def _findings(connection: Connection, context: Context, gauges: DatabaseGauges) -> list[Finding]:
    findings = [Finding(what, "error", text) for what, text in context.health.messages().items()]
    findings += _isolation(connection, context)
    for task_id, step, action in health.unknown_calls(connection):
        text = f"The result of {action} of step {step} was never recorded. Did it happen?"
        findings.append(Finding("unknown effect", "warning", text, f"/tasks/{task_id}"))
    findings += [
        Finding("task", "error", "It runs, but nothing will wake it.", f"/tasks/{task_id}")
        for task_id in health.stuck_tasks(connection)
    ]
    age = health.oldest_transaction_seconds(connection)
    if age > _LONG_TRANSACTION_SECONDS:
        text = f"A transaction has been open for {age / 60:.0f} minutes: it holds back events."
        findings.append(Finding("database", "warning", text))
    if gauges.queue_age_seconds > _LONG_QUEUE_SECONDS:
        text = f"A task has been due for {gauges.queue_age_seconds:.0f} s and was not claimed."
        findings.append(Finding("queue", "warning", text))
    return findings + _space(context) + _files(context)


def _isolation(connection: Connection, context: Context) -> list[Finding]:
    solo_seconds, now = context.settings.engine.solo_seconds, context.database.clock.now()
    isolated = isolated_steps.isolation(connection, solo_seconds, now)
    if isolated is None:
        return []
    text = sentence(isolated_steps.words(isolated, str, str))
    return [Finding("new steps wait", "warning", text, f"/tasks/{isolated['task']}")]


def _files(context: Context) -> list[Finding]:
    """Return the workflow files that cannot be used, each with its first problem."""
    entries = context.workflow_files.scanned(context.settings.workflow_directory)
    return [
        Finding(
            "workflow file", "error", f"{entry.path.name}: {_first_problem(entry)}", "/workflows"
        )
        for entry in entries
        if entry.problems
    ]


def _first_problem(entry: Entry) -> str:
    problem = entry.problems[0]
    place = "" if problem.line is None else f"line {problem.line}: "
    return f"{place}{problem.message}{f'; {problem.hint}' if problem.hint else ''}"


def _space(context: Context) -> list[Finding]:
    path = context.database.path
    if path is None:
        return []
    free = shutil.disk_usage(path.parent).free
    if free >= _LITTLE_SPACE_BYTES:
        return []
    return [Finding("disk", "warning", f"Only {free // 1024 // 1024} MB are free.")]


def _database(connection: Connection, context: Context) -> Document:
    path = context.database.path
    sqlite = f"SQLite {health.sqlite_version(connection)}" if path is not None else ""
    return {
        "kind": sqlite or "PostgreSQL",
        "path": str(path) if path is not None else None,
        "bytes": health.database_bytes(connection),
        "oldest_transaction_seconds": health.oldest_transaction_seconds(connection),
    }


def _behind(connection: Connection, channel: str) -> int | None:
    """Return how many events a channel has still to read; None before its first start."""
    cursor = cursors.cursor(connection, channel)
    return (
        None if cursor is None else health.events_behind(connection, cursor.event_id, _MOST_BEHIND)
    )
