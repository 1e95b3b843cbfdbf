"""The actions behind the buttons of a task's page: the operator's commands."""

from collections.abc import Callable
from typing import Final, get_args

from starlette.requests import Request
from starlette.responses import Response

from agent.approvals import answering
from agent.approvals.answering import Verdict
from agent.server.context import caller, context_of
from agent.server.pages.forms.form_values import json_field
from agent.server.pages.framework import rendering
from agent.server.pages.framework.page_registry import PageRegistry
from agent.server.pages.framework.page_request import Form
from agent.server.pages.tasks.task_page import task_page
from agent.server.problems import Problem
from agent.tasks.operator.operator import CommandResult, Operator

pages = PageRegistry("task-actions")

Command = Callable[[Operator, str, Form], CommandResult]
"""Gives a command to a task, with the fields of its form."""

_VERDICTS: Final[dict[str, Verdict]] = {name: name for name in get_args(Verdict)}


def _pause(operator: Operator, task_id: str, form: Form) -> CommandResult:
    return operator.pause(task_id, form.get("reason") or None)


def _resume(operator: Operator, task_id: str, _: Form) -> CommandResult:
    return operator.resume(task_id)


def _cancel(operator: Operator, task_id: str, form: Form) -> CommandResult:
    return operator.cancel(task_id, form.get("reason") or None)


def _retry(operator: Operator, task_id: str, _: Form) -> CommandResult:
    return operator.retry(task_id)


def _retry_on_latest_version(operator: Operator, task_id: str, _: Form) -> CommandResult:
    return operator.retry(task_id, is_latest=True)


def _signal(operator: Operator, task_id: str, form: Form) -> CommandResult:
    name = form.get("name", "").strip()
    if not name:
        raise Problem(422, "invalid", "the signal needs a name")
    return operator.signal(task_id, name, json_field(form, "payload", "the value"))


def _add(address: str, command: Command) -> None:
    async def act(request: Request, form: Form) -> Response:
        task_id = request.path_params["task_id"]
        return await _give(request, form, lambda operator: command(operator, task_id, form))

    # The audit log names the command after the function.
    act.__name__ = command.__name__.removeprefix("_")
    pages.action(f"/tasks/{{task_id}}/{address}", scope="operate")(act)


_add("pause", _pause)
_add("resume", _resume)
_add("cancel", _cancel)
_add("retry", _retry)
_add("retry-latest", _retry_on_latest_version)
_add("signal", _signal)


@pages.action("/tasks/{task_id}/steps/{name}/resolve", scope="approve")
async def resolve(request: Request, form: Form) -> Response:
    """Resolve an effect whose result is unknown, by a person's verdict."""
    task_id, name = request.path_params["task_id"], request.path_params["name"]
    database, principal = context_of(request).database, caller(request).principal

    def decide(_: Operator) -> CommandResult:
        verdict = _VERDICTS.get(form.get("verdict", ""))
        if verdict is None:
            raise Problem(422, "invalid", "say whether it happened: done, retry or fail")
        output = json_field(form, "output", "the output")
        return answering.resolve(database, task_id, name, verdict, output, principal=principal)

    return await _give(request, form, decide)


async def _give(
    request: Request, form: Form, command: Callable[[Operator], CommandResult]
) -> Response:
    """Give a command and show the task that it leads to, or the page again with the problem."""
    context = context_of(request)
    try:
        result = await context.command_pool.run(lambda: command(context.operator))
    except Exception as error:
        return await rendering.respond_again(request, task_page, form, error)
    return rendering.redirect(
        request, f"/tasks/{result.task_id}", rendering.sentence(result.message)
    )
