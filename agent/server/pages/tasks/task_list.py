"""The list of tasks: search and filters in the address, the newest first."""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from agent.server.pages.framework.page_registry import PageRegistry
from agent.server.pages.framework.page_request import PageRequest
from agent.server.pages.framework.page_words import for_pages
from agent.server.pages.framework.templates import in_one_line
from agent.server.problems import Problem
from agent.store.db.database import Connection
from agent.store.engine import workflow_versions
from agent.store.read import task_list as rows
from agent.store.read.activity import Activity
from agent.store.read.task_list import TaskFilter
from agent.tasks.operator.state_table import COMMANDS
from agent.tasks.read_models import task_list as read_model
from agent.tasks.read_models.listed_waits import words

pages = PageRegistry("tasks")

PAGE: Final = 50
ACTIVITIES: Final = {
    "running": "Running",
    "waiting": "Waiting",
    "paused": "Paused",
    "failed": "Failed",
    "succeeded": "Done",
    "canceled": "Canceled",
}
SINCE: Final = {"1h": "last hour", "1d": "last day", "7d": "last week", "30d": "last 30 days"}
_SINCE_SECONDS: Final = 60
"""How often a list of the latest time is read again: tasks leave it without events."""
_PART_OF_ID: Final = re.compile(r"[0-9a-f-]{4,36}")
_COMMANDS: Final = ("cancel", "retry", "pause", "resume")
_PARAMETERS: Final = ("search", "activity", "workflow", "trigger", "since")


@pages.page("/tasks", "task_list.html")
def task_list(connection: Connection, request: PageRequest) -> dict[str, Any]:
    """Return a page of the tasks that the address asks for."""
    versions = workflow_versions.latest_versions(connection)
    workflows = sorted(str(version.name) for version in versions)
    page = _page(connection, request, workflows)
    tasks = page["tasks"]
    failed = [task["id"] for task in tasks if task["status"] == "failed"]
    return {
        "tasks": tasks,
        "failures": _failures(connection, failed) if failed else {},
        "waits": {task["id"]: _wait(task) for task in tasks if task["waiting_for"]},
        "searched": page["searched"],
        "query": {name: request.query.get(name, "") for name in _PARAMETERS},
        "is_filtered": any(request.query.get(name) for name in _PARAMETERS),
        "activities": ACTIVITIES,
        "commands": _commands(request.query.get("activity")),
        "since": SINCE,
        "workflows": workflows,
        "next": request.url(cursor=page["next"]) if page["next"] else None,
        "first": request.url(cursor=None) if request.query.get("cursor") else None,
        "every_seconds": _SINCE_SECONDS if request.query.get("since") else None,
    }


def _commands(activity: str | None) -> list[str]:
    """Return the commands that would change a task of an activity; without one, all."""
    if not activity:
        return list(_COMMANDS)
    status = "running" if activity == Activity.WAITING else activity
    return [name for name in _COMMANDS if COMMANDS[name][status].effect == "act"]


def filter_of(query: Mapping[str, str], now: int) -> TaskFilter:
    """Return the filter in an address; a value that cannot be read is refused."""
    activity = query.get("activity") or None
    if activity is not None and activity not in list(Activity):
        raise Problem(422, "invalid", f"there is no activity {activity!r}")
    since = query.get("since") or None
    try:
        instant = None if since is None else read_model.parse_since(since, now)
    except ValueError as error:
        raise Problem(422, "invalid", str(error)) from None
    return TaskFilter(
        activities=() if activity is None else (activity,),
        workflow=query.get("workflow") or None,
        trigger=query.get("trigger") or None,
        since=instant,
    )


def _page(connection: Connection, request: PageRequest, workflows: list[str]) -> dict[str, Any]:
    """Return a page: the search finds parts of ids, workflows, and texts of tasks."""
    wanted = filter_of(request.query, request.context.database.clock.now())
    search = request.query.get("search", "").strip()[: read_model.MAX_SEARCH]
    cursor = (request.query.get("cursor") or "")[:100] or None
    if _PART_OF_ID.fullmatch(search.lower()):
        by_id = replace(wanted, part_of_id=search.lower())
        page = read_model.page(connection, by_id, PAGE, cursor)
        if page["tasks"]:
            return page
    if search in workflows and wanted.workflow is None:
        return read_model.page(connection, replace(wanted, workflow=search), PAGE, cursor)
    return read_model.page(connection, replace(wanted, search=search or None), PAGE, cursor)


def _failures(connection: Connection, task_ids: list[str]) -> dict[str, tuple[str, str]]:
    """Return by task the step that failed first, and its error on one line."""
    return {
        task_id: (step, _message(error))
        for task_id, (step, error) in rows.failed_steps(connection, task_ids).items()
    }


def _message(stored: str) -> str:
    error = json.loads(stored)
    text = error.get("message") if isinstance(error, dict) else error
    return in_one_line(for_pages(str(text or "")))


def _wait(task: dict[str, Any]) -> tuple[str, str]:
    """Describe the wait of a task, with the instant as a separate value: browsers write local times."""
    until = ""

    def moment(instant: str) -> str:
        nonlocal until
        until = instant
        return ""

    text = words(task["waiting_for"], moment).strip()
    # Browsers write a distance from now: "waits, due in 5 h", "tries again in 20 s".
    return text.replace("waits until", "waits, due").removesuffix(" at") if until else text, until
