"""Events, the newest first, by type and task."""

import re
from typing import Any, Final

from agent.core.clock import to_iso
from agent.core.escape import harmless_json
from agent.server.pages.framework.page_registry import PageRegistry
from agent.server.pages.framework.page_request import PageRequest
from agent.server.pages.framework.templates import short_id
from agent.server.pages.tasks import step_words
from agent.store.db.database import Connection
from agent.store.db.json_values import decode
from agent.store.read.recent_events import MAX_SEARCHED, recent_events
from agent.tasks.errors import NotFoundError
from agent.tasks.read_models import task_documents

Document = dict[str, Any]

pages = PageRegistry("events")

_PAGE: Final = 50
TYPES: Final = ("task", "step", "tool_call", "approval", "budget", "state", "worker", "schedule")
"""Prefixes of the types of events."""
_HIDDEN: Final = frozenset({"output"})
_UUID: Final = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@pages.page("/events", "events.html")
def event_list(connection: Connection, request: PageRequest) -> Document:
    """Return a page of events."""
    query = request.query
    kind = query.get("type", "")
    kind = kind if kind in TYPES else ""
    task, problem = _task(connection, query.get("task", "").strip())
    cursor = _cursor(query.get("cursor"))
    events: list[Document] = []
    if problem is None:
        events = recent_events(
            connection,
            limit=_PAGE + 1,
            type_prefix=kind or None,
            task_id=task,
            before=cursor,
        )
    shown = events[:_PAGE]
    last = f"{shown[-1]['xid']}-{shown[-1]['id']}" if len(events) > _PAGE else None
    return {
        "events": [shown_entry(row) for row in shown],
        "types": [("", "All", request.url(type=None, cursor=None), not kind)]
        + [
            (
                event_type,
                event_type.replace("_", " "),
                request.url(type=event_type, cursor=None),
                event_type == kind,
            )
            for event_type in TYPES
        ],
        "task": task,
        "asked_task": query.get("task", ""),
        "kind": kind,
        "task_problem": problem,
        "searched": MAX_SEARCHED,
        "first": request.url(cursor=None) if cursor else None,
        "next": request.url(cursor=last) if last else None,
        "live_tasks": [task] if task else [],
    }


def _task(connection: Connection, text: str) -> tuple[str | None, str | None]:
    """Return the task that a text names, or why there is none."""
    if not text:
        return None, None
    try:
        return task_documents.find_task(connection, text), None
    except (NotFoundError, task_documents.AmbiguousIdError) as error:
        return None, str(error)


def _cursor(text: str | None) -> tuple[int, int] | None:
    try:
        return task_documents.parse_cursor(text) if text else None
    except ValueError:
        return None


def shown_entry(row: Document) -> Document:
    """Return a row of events as the page shows it."""
    data = decode(row["data"]) if row["data"] else None
    number = row["parallel_index"]
    is_item = number is not None and number >= 0
    return {
        "key": f"{row['xid']}-{row['id']}",
        "task": row["task_id"],
        "type": row["type"],
        "step": f"{row['step_name']}[{number}]" if is_item else row["step_name"],
        "attempt": row["attempt"],
        "at": to_iso(row["at"]),
        "data": _shown(data),
    }


def _words(name: str, value: Any) -> str:
    """Return one member of an event's data for a person."""
    match value:
        case {"message": str(message)}:
            return f"{name}: {message}"
        case dict() if name == "on" and value:
            return step_words.waiting(value)
        case str():
            return f"{name}: {short_id(value) if _UUID.fullmatch(value) else value}"
    return f"{name}: {harmless_json(value)}"


def _shown(data: Any) -> str:
    """Return an event's data in one line."""
    if not isinstance(data, dict):
        return "" if data is None else str(data)
    return ", ".join(_words(name, value) for name, value in data.items() if name not in _HIDDEN)
