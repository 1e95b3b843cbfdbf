"""What the buttons of a task's page do: the operator's commands."""

from collections.abc import Callable
from typing import Final, get_args

from starlette.requests import Request
from starlette.responses import Response

from agent.server.context import caller, context_of
from agent.server.pages import rendering
from agent.server.pages.form_values import json_field
from agent.server.pages.page_registry import PageRegistry
from agent.server.pages.page_request import Form
from agent.server.pages.task_page import task_page
from agent.server.problems import Problem, problem_of
from agent.tasks.operator.operator import CommandResult, Operator, Verdict

pages = PageRegistry("task-actions")

_VERDICTS: Final[dict[str, Verdict]] = {name: name for name in get_args(Verdict)}

Command = Callable[[Operator], CommandResult]


@pages.action("/tasks/{task_id}/pause", scope="operate")
async def pause(request: Request, form: Form) -> Response:
    """Pause a task."""
    task_id = request.path_params["task_id"]
    reason = form.get("reason") or None
    return await _give(request, form, lambda operator: operator.pause(task_id, reason))


@pages.action("/tasks/{task_id}/resume", scope="operate")
async def resume(request: Request, form: Form) -> Response:
    """Resume a task."""
    task_id = request.path_params["task_id"]
    return await _give(request, form, lambda operator: operator.resume(task_id))


@pages.action("/tasks/{task_id}/cancel", scope="operate")
async def cancel(request: Request, form: Form) -> Response:
    """Cancel a task."""
    task_id = request.path_params["task_id"]
    reason = form.get("reason") or None
    return await _give(request, form, lambda operator: operator.cancel(task_id, reason))


@pages.action("/tasks/{task_id}/retry", scope="operate")
async def retry(request: Request, form: Form) -> Response:
    """Retry a task; the page of the new task is shown."""
    task_id = request.path_params["task_id"]
    return await _give(request, form, lambda operator: operator.retry(task_id))


@pages.action("/tasks/{task_id}/retry-latest", scope="operate")
async def retry_on_latest_version(request: Request, form: Form) -> Response:
    """Retry a task under the newest version of its workflow."""
    task_id = request.path_params["task_id"]
    return await _give(request, form, lambda operator: operator.retry(task_id, is_latest=True))


@pages.action("/tasks/{task_id}/signal", scope="operate")
async def signal(request: Request, form: Form) -> Response:
    """Send a signal with a value that was typed as JSON."""
    task_id = request.path_params["task_id"]

    def send(operator: Operator) -> CommandResult:
        name = form.get("name", "").strip()
        if not name:
            raise Problem(422, "invalid", "the signal needs a name")
        return operator.signal(task_id, name, json_field(form, "payload", "the value"))

    return await _give(request, form, send)


@pages.action("/tasks/{task_id}/steps/{name}/resolve", scope="approve")
async def resolve(request: Request, form: Form) -> Response:
    """Say what became of an effect whose result is unknown."""
    task_id, name = request.path_params["task_id"], request.path_params["name"]
    by = caller(request).name

    def decide(operator: Operator) -> CommandResult:
        verdict = _VERDICTS.get(form.get("verdict", ""))
        if verdict is None:
            raise Problem(422, "invalid", "say whether it happened: done, retry or fail")
        output = json_field(form, "output", "the output")
        return operator.resolve(task_id, name, verdict, output, by)

    return await _give(request, form, decide)


async def _give(request: Request, form: Form, command: Command) -> Response:
    """Give a command and show the task that it leads to, or the page again with the problem."""
    context = context_of(request)
    try:
        result = await context.command_pool.run(lambda: command(context.operator))
    except Exception as error:
        problem = problem_of(error)
        if problem.status_code not in (409, 422):
            raise
        task_id = request.path_params["task_id"]
        return await rendering.respond(
            request,
            task_page,
            status=problem.status_code,
            problem=rendering.sentence(problem.detail),
            typed=form,
            path=f"/tasks/{task_id}",
            params={"task_id": task_id},
        )
    return rendering.redirect(
        request, f"/tasks/{result.task_id}", rendering.sentence(result.message)
    )
