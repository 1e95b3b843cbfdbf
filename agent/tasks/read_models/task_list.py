"""The list of tasks, a page at a time: the same for the command line, the API, chats and pages."""

import json
import re
from datetime import date, datetime, timedelta
from typing import Any, Final

from agent.core.clock import SECOND, to_iso
from agent.core.local_zone import local_date
from agent.core.plain_json import Json
from agent.core.search_terms import folded
from agent.core.state_machine import TaskStatus
from agent.store.db.database import Connection
from agent.store.read import task_list, views
from agent.store.read.task_list import TaskFilter
from agent.tasks.read_models import listed_waits
from agent.tasks.read_models.task_documents import summary
from agent.workflows.durations import parse_duration

Document = dict[str, Json]

RETRIED: Final = (TaskStatus.FAILED, TaskStatus.CANCELED)
"""The statuses of tasks that can be retried."""
MAX_COUNTED: Final = 10_000
"""A total above this is not counted to its end."""
MAX_SEARCH: Final = 200
"""Characters of a text to search for."""
SEARCH_SECONDS: Final = 2.0
"""How long one page searches; the next page continues."""
_SEARCHED_AT_ONCE: Final = 100
_PREVIEW: Final = 200
_DAYS: Final = {"today": 0, "yesterday": 1}
_LONG_UNIT: Final = re.compile(
    r"([0-9]{1,9}(?:\.[0-9]{1,6})?) {0,3}(weeks?|days?|hours?|minutes?|mins?|seconds?|secs?)",
    re.IGNORECASE,
)
"""A duration in words, as in `2 days`."""


def list_tasks(
    connection: Connection,
    wanted: TaskFilter | None = None,
    limit: int = 50,
    before: str | None = None,
) -> list[Document]:
    """Return the newest tasks that a filter selects, or those older than one, as short documents.

    A filter with a search needs `page`, which says how far it got.
    """
    return documents_of(
        connection, task_list.ids(connection, wanted or TaskFilter(), limit, before)
    )


def page(
    connection: Connection,
    wanted: TaskFilter,
    limit: int,
    before: str | None = None,
    *,
    has_total: bool = False,
) -> Document:
    """Return a page of tasks with `next`, which is `before` of the next page, or null.

    A search looks through the newest tasks for `SEARCH_SECONDS` at most. Its page may have fewer
    tasks than `limit` and still a `next`. `searched` has the number of tasks that it looked through and
    when the oldest of them was created. With `has_total`, `total` is how many tasks there are, no more
    than `MAX_COUNTED`; it is null for a search.
    """
    searched = None
    if wanted.search is None:
        ids = task_list.ids(connection, wanted, limit + 1, before)
        following = ids[limit - 1] if len(ids) > limit else None
    else:
        ids, following, searched = _search(connection, wanted, limit, before)
    is_counted = has_total and wanted.search is None
    return {
        "tasks": documents_of(connection, ids[:limit]),
        "next": following,
        "total": task_list.count(connection, wanted, MAX_COUNTED) if is_counted else None,
        "searched": searched,
    }


def parse_since(text: str, now: int) -> int:
    """Return the instant that `2h`, `2 days`, `yesterday`, `2026-11-01` or `2026-11-01T09:30` stands for.

    A date or time without a zone is in the zone of this machine. Raises `ValueError` for people.
    """
    text = text.strip()
    days_ago = _DAYS.get(text.lower())
    if days_ago is not None:
        text = (date.fromisoformat(local_date(now)) - timedelta(days=days_ago)).isoformat()
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        try:
            return now - round(parse_duration(_in_units(text)) * SECOND)
        except ValueError:
            raise ValueError(
                f"{text!r} is not a time: write how long ago, such as 2h or 7d, or a date or time, such"
                " as yesterday, 2026-11-01 or 2026-11-01T09:30"
            ) from None
    try:
        return round(moment.astimezone().timestamp() * SECOND)
    except (OverflowError, ValueError, OSError):
        raise ValueError(f"{text!r} is too far from now") from None


def _in_units(text: str) -> str:
    """Write `2 days ago` as a duration."""
    short = _LONG_UNIT.sub(lambda found: found[1] + found[2][0].lower(), text.removesuffix(" ago"))
    return short.replace(" ", "")


def _search(
    connection: Connection, wanted: TaskFilter, limit: int, before: str | None
) -> tuple[list[str], str | None, Document]:
    """Return the ids of tasks that a search finds, where to continue, and how far it got."""
    clock = connection.database.clock
    give_up = clock.monotonic() + SEARCH_SECONDS
    matches: list[str] = []
    oldest, count = before, 0
    while True:
        batch = task_list.matches(connection, wanted, _SEARCHED_AT_ONCE, oldest)
        unsure = [task_id for task_id, is_match, may_match in batch if may_match and not is_match]
        also = _folded_matches(connection, wanted.search or "", unsure)
        for task_id, is_match, _ in batch:
            oldest, count = task_id, count + 1
            matches += [task_id] * (is_match or task_id in also)
            if len(matches) == limit:
                break
        is_end = len(batch) < _SEARCHED_AT_ONCE and (not batch or oldest == batch[-1][0])
        if is_end or len(matches) == limit or clock.monotonic() > give_up:
            break
    created = task_list.rows(connection, [oldest])[0]["created_at"] if count and oldest else None
    return matches, None if is_end else oldest, {"tasks": count, "back_to": to_iso(created)}


def _folded_matches(connection: Connection, search: str, task_ids: list[str]) -> set[str]:
    """Return the tasks that have a text without case and accents, or as lists print it."""
    if not task_ids:
        return set()
    found = task_list.texts(connection, task_ids)
    if any(sign in search for sign in task_list.PRINTED_SIGNS):
        for task_id, (step, error) in task_list.failed_steps(connection, task_ids).items():
            message = str((_loaded(error) or {}).get("message"))
            found[task_id].append(f"{step}: {' '.join(message.split())}")
        for task in documents_of(connection, task_ids):
            found[task["id"]] += (task["input_preview"], listed_waits.words(task["waiting_for"]))
    # Stored texts are JSON.
    forms = [folded(search), folded(json.dumps(search, ensure_ascii=False)[1:-1])]
    return {
        task_id
        for task_id, texts in found.items()
        if any(form in text for text in map(folded, texts) for form in forms)
    }


def documents_of(connection: Connection, task_ids: list[str]) -> list[Document]:
    """Return some tasks as a list shows them, the newest first."""
    if not task_ids:
        return []
    rows = task_list.rows(connection, task_ids)
    waiting = listed_waits.of_tasks(connection, rows)
    ended = [row["id"] for row in rows if row["status"] in RETRIED]
    retried = views.retried_as(connection, ended) if ended else {}
    return [
        {
            **summary(row, retried.get(row["id"])),
            "error": _loaded(row["error"]),
            "input_preview": input_preview(row["input"]),
            "trigger": _trigger(row),
            "parent": row["parent_task_id"],
            "waiting_for": waiting.get(row["id"], []),
            **listed_waits.counts(waiting.get(row["id"], [])),
            "delay": _loaded(row["delay"]),
        }
        for row in rows
    ]


def input_preview(text: str) -> str:
    """Return the beginning of a stored input as one line: `amount=250, vendor=Example`."""
    try:
        value = json.loads(text)
    except ValueError:
        # Only the beginning of a large input was read.
        value = None
    if isinstance(value, dict):
        text = ", ".join(f"{name}={_plain(member)}" for name, member in value.items())
    text = " ".join(text.split())
    return text if len(text) <= _PREVIEW else f"{text[: _PREVIEW - 1]}…"


def _plain(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _trigger(row: dict[str, Any]) -> Document:
    """Return what started a task: its kind, and the schedule or watcher if it was one."""
    try:
        trigger = json.loads(row["trigger"] or "{}")
    except ValueError:
        # Only the beginning of a large one was read.
        trigger = None
    return {"kind": (trigger or {}).get("kind"), "id": row["trigger_id"]}


def _loaded(text: str | None) -> Json:
    return json.loads(text) if text is not None else None
