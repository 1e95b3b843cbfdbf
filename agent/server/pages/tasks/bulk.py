"""Actions on many tasks at once: first a page with the effect on each, then the action."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from agent.core.logs import audit
from agent.server.context import Context, caller, context_of
from agent.server.pages.framework import rendering
from agent.server.pages.framework.page_registry import PageRegistry
from agent.server.pages.framework.page_request import Form, PageRequest
from agent.server.pages.tasks.task_list import filter_of
from agent.server.problems import Problem
from agent.server.requests.route_registry import client_address
from agent.store.db.database import Connection
from agent.store.read import task_list as rows
from agent.tasks.errors import NotFoundError, RefusedError
from agent.tasks.operator import state_table
from agent.tasks.operator.operator import CommandResult, Operator
from agent.tasks.read_models import task_list as read_model

pages = PageRegistry("bulk")

MAX_TASKS: Final = 200
"""Tasks of one action; the rest is a second one."""
_MOST_NAMED: Final = 3
"""New tasks that the notice names."""
COMMANDS: Final[dict[str, tuple[str, Callable[[Operator, str], CommandResult]]]] = {
    "cancel": ("Cancel", lambda operator, task_id: operator.cancel(task_id, None)),
    "retry": ("Retry", lambda operator, task_id: operator.retry(task_id)),
    "pause": ("Pause", lambda operator, task_id: operator.pause(task_id, None)),
    "resume": ("Resume", lambda operator, task_id: operator.resume(task_id)),
}
_PAST: Final = {
    "cancel": "canceled",
    "retry": "retried",
    "pause": "paused",
    "resume": "resumed",
}


@pages.page("/tasks/bulk", "bulk.html", scope="operate")
def preview(connection: Connection, request: PageRequest) -> dict[str, Any]:
    """Return the effect of a command on each chosen task."""
    command = request.query.get("do", "")
    if command not in COMMANDS:
        raise Problem(422, "invalid", "choose what to do: cancel, retry, pause or resume")
    ids = _chosen(connection, request)
    tasks = read_model.documents_of(connection, ids[:MAX_TASKS])
    counts = rows.step_counts(connection, [task["id"] for task in tasks])
    entries = [
        (task, *_consequence(command, task["status"], counts.get(task["id"], {}))) for task in tasks
    ]
    return {
        "command": command,
        "label": COMMANDS[command][0],
        "past": _PAST[command],
        "entries": entries,
        "changed": [task["id"] for task, effect, _ in entries if effect == "act"],
        "has_more": len(ids) > MAX_TASKS,
        "most": MAX_TASKS,
        "back": _list_of(request.query),
        "live_tasks": [task["id"] for task in tasks][:50],
    }


@pages.action("/tasks/bulk", scope="operate")
async def bulk_command(request: Request, form: Form) -> Response:
    """Do a command to each of the tasks that the preview listed."""
    command, ids = form.get("do", ""), form.get("task", "").split()
    if command not in COMMANDS or not ids or len(ids) > MAX_TASKS:
        raise Problem(422, "invalid", "choose what to do, and to which tasks")
    context = context_of(request)
    who = f"page:{caller(request).name}"
    source = client_address(request.scope)
    changed, unchanged = await context.command_pool.run(
        lambda: _do_all(context, command, ids, who, source)
    )
    text = f"{len(changed)} {_PAST[command]}"
    if command == "retry" and 0 < len(changed) <= _MOST_NAMED:
        text += f" as {', '.join(changed)}"
    text += "." + "".join(f" {count} not: {why}." for why, count in unchanged.most_common(3))
    return rendering.redirect(request, _list_of(form), text)


def _do_all(
    context: Context, command: str, ids: list[str], who: str, source: str
) -> tuple[list[str], Counter[str]]:
    """Return the tasks that a command has changed or started, and why it has not changed the others."""
    changed, unchanged = list[str](), Counter[str]()
    for task_id in dict.fromkeys(ids):
        try:
            with audit.recorded(who, source, command, task=task_id):
                result = COMMANDS[command][1](context.operator, task_id)
        except (NotFoundError, RefusedError) as error:
            unchanged[str(error)] += 1
            continue
        if result.is_changed:
            changed.append(result.task_id)
        else:
            unchanged[result.message] += 1
    return changed, unchanged


def _list_of(fields: Mapping[str, str]) -> str:
    """Return the list, with its filters, from which the tasks were chosen."""
    back = rendering.back_of(fields)
    return back if back.partition("?")[0] == "/tasks" else "/tasks"


def _chosen(connection: Connection, request: PageRequest) -> list[str]:
    """Return the tasks that were ticked, or all that the list's filters select."""
    if ids := request.values("task"):
        return [task_id for task_id in ids if len(task_id) <= 100]
    if not request.query.get("all"):
        raise Problem(422, "invalid", "choose at least one task")
    wanted = filter_of(request.query, request.context.database.clock.now())
    return rows.ids(connection, wanted, MAX_TASKS + 1)


def _consequence(command: str, status: str, counts: dict[str, int]) -> tuple[str, str]:
    """Return the effect of a command in a state (act, same, refuse), and its description."""
    cell = state_table.COMMANDS[command][status]
    if cell.effect != "act":
        return cell.effect, cell.message
    done, running = counts.get("succeeded", 0), counts.get("running", 0)
    rest = sum(counts.values()) - done
    match command:
        case "cancel":
            parts = [f"interrupts {_steps(running)}"] * bool(running)
            left = rest - running
            parts += [f"{_steps(left)} never {'runs' if left == 1 else 'run'}"] * (left > 0)
            return "act", ", ".join(parts) or "ends the task"
        case "retry":
            kept = f" and keeps {_steps(done, 'result')}" if done else ""
            return "act", f"starts a new task that runs {_steps(rest)} again{kept}"
        case "pause":
            return (
                "act",
                "starts nothing new; running steps end" if running else "starts nothing new",
            )
        case _:
            return "act", "continues where it stopped"


def _steps(number: int, noun: str = "step") -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
