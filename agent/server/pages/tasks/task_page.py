"""The page of one task: its state, its waits, its history and its commands."""

from typing import Any, Final

from agent.approvals import approval_documents
from agent.core.clock import to_iso
from agent.core.waits import Child, Signal, Timer, asks_person, from_document
from agent.server.pages.framework.page_registry import PageRegistry
from agent.server.pages.framework.page_request import PageRequest
from agent.server.pages.framework.renderings import by_task
from agent.server.pages.inbox import budget_cards, question_cards
from agent.server.pages.tasks import step_words
from agent.server.pages.tasks.log_page import SHOWN, end_of
from agent.server.pages.tasks.step_list import step_list
from agent.server.pages.tasks.task_commands import offered_commands
from agent.server.pages.tasks.task_drawings import add_durations, task_graph, task_timeline
from agent.store.db.database import Connection
from agent.store.read import overview, step_views, task_list
from agent.tasks.read_models import (
    isolated_steps,
    person_waits,
    spending,
    task_documents,
    task_overview,
)
from agent.tasks.state.graph_cache import GraphCache

Document = dict[str, Any]

pages = PageRegistry("task")

_REFRESH_SECONDS: Final = 10
"""How often the page of an open task is drawn again: its bars grow."""
_LOG_LINES: Final = 60
_EVENTS: Final = 6


@pages.page("/tasks/{task_id}", "task.html", version=by_task)
def task_page(connection: Connection, request: PageRequest) -> Document:
    """Return everything about a task, in bounded size."""
    task_id = request.params["task_id"]
    now = request.context.database.clock.now()
    task = task_overview.task_overview(connection, task_id, request.context.graphs, now)
    add_durations(task, now)
    failed = _failed_step(task)
    steps = step_list(task)
    budget = _budget(connection, task, request.context.graphs)
    below = [] if task["ended_at"] else task_list.open_descendants(connection, [task_id])
    family = [task_id, *(row["id"] for row in below)]
    return {
        "task": task,
        "steps": steps,
        "graph": task_graph(task),
        "timeline": task_timeline(task, now),
        "cards": question_cards.cards(connection, request, _questions(connection, task, family)),
        "deferrals": question_cards.DEFERRALS,
        "unknown_effects": task_documents.unknown_effects(connection, task),
        "failed": failed,
        "failed_log": _log(connection, task, failed),
        "signals": _signals(task),
        "waits": [*_waits(task), *_held_back(connection, task, request, now)],
        "budget": budget,
        "used_up": budget_cards.card_of(connection, task),
        "limited_steps": [
            each["step"] for each in (budget or {}).get("budgets", []) if each["step"]
        ],
        "commands": offered_commands(connection, task, request),
        "events": _events(connection, task_id),
        "live_tasks": list(dict.fromkeys([*family, *(child["id"] for child in task["children"])])),
        "every_seconds": None if task["ended_at"] else _REFRESH_SECONDS,
    }


def _questions(connection: Connection, task: Document, family: list[str]) -> list[Document]:
    """Return the open questions of a task that has not ended, and of those below it."""
    if task["ended_at"] is not None:
        return []
    return approval_documents.list_approvals(connection, task_ids=family, limit=20)


def _failed_step(task: Document) -> Document | None:
    """Return the step whose failure matters most: a failed item rather than its group."""
    failed = [step for step in task["items"] + task["steps"] if step["status"] == "failed"]
    own = [step for step in failed if (step["error"] or {}).get("code") != "upstream_failed"]
    return next(iter(own or failed), None)


def _log(connection: Connection, task: Document, failed: Document | None) -> list[Document]:
    """Return the end of the failed step's last log."""
    if failed is None:
        return []
    pieces = step_views.step_log(connection, task["id"], failed["id"], _LOG_LINES)
    last = pieces[-1]["attempt"] if pieces else 0
    return end_of([piece for piece in pieces if piece["attempt"] == last], SHOWN)


def _signals(task: Document) -> list[Document]:
    """Return the steps that wait for a signal, each with its name."""
    if task["ended_at"] is not None:
        return []
    return [
        {"step": step["name"], "name": on.name}
        for step in task["steps"] + task["items"]
        if isinstance(on := person_waits.wait_of(step), Signal)
    ]


def _waits(task: Document) -> list[Document]:
    """Return the waits that have no card below: timers, children, retries."""
    waits = []
    for wait in task["waiting_on"]:
        on = from_document(wait)
        if "retry_at" in wait:
            waits.append({"step": wait["step"], "text": "tries again", "at": wait["retry_at"]})
        elif isinstance(on, Timer) and not on.store_error and not on.turn_after:
            waits.append({"step": wait["step"], "text": "is due", "at": to_iso(on.at)})
        elif not asks_person(on):
            child_id = on.task_id if isinstance(on, Child) else None
            text = step_words.waiting(wait)
            waits.append({"step": wait["step"], "text": text, "at": None, "child": child_id})
    return waits


def _held_back(
    connection: Connection, task: Document, request: PageRequest, now: int
) -> list[Document]:
    """Return why the first due step does not start, where another one runs alone after a crash."""
    due = [
        step
        for step in task["steps"]
        if step["status"] == "pending" and step["wake_at"] and step["wake_at"] <= to_iso(now)
    ]
    if task["status"] != "running" or not due:
        return []
    solo_seconds = request.context.settings.engine.solo_seconds
    # The rest is read only while a step runs alone.
    if isolated_steps.running(connection, solo_seconds, now) is None:
        return []
    isolated = isolated_steps.isolation(connection, solo_seconds, now)
    assert isolated is not None
    text = f"waits: {isolated_steps.words(isolated, str, str)}"
    return [{"step": due[0]["name"], "text": text, "at": None}]


def _budget(connection: Connection, task: Document, graphs: GraphCache) -> Document | None:
    document = spending.budget_document(connection, task["id"], graphs)
    return document if document["calls"] or document["budgets"] else None


def _events(connection: Connection, task_id: str) -> list[Document]:
    rows = overview.latest_events(connection, task_id, _EVENTS)
    return [row | {"at": to_iso(row["at"])} for row in rows]
