"""Raises a budget that has paused a task, from the inbox or from the task's page."""

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from agent.approvals.answering import InvalidAnswerError
from agent.core.money import MICROUSD
from agent.server.context import context_of
from agent.server.pages.forms.schema_form import read_number
from agent.server.pages.framework import rendering
from agent.server.pages.framework.page_registry import PageRegistry
from agent.server.pages.framework.page_request import Form
from agent.server.pages.inbox.inbox import inbox
from agent.server.pages.tasks.task_page import task_page
from agent.tasks.operator import budget_pause
from agent.tasks.operator.operator import CommandResult, Operator

pages = PageRegistry("budget-action")

_MOST: Final = {"tokens": 2**53 - 1, "usd": 10**9, "minutes": 10**8}


@pages.action("/tasks/{task_id}/budget", scope="approve")
async def raise_budget(request: Request, form: Form) -> Response:
    """Raise a budget and let its tasks go on; a refused form is shown again with the typed text."""
    context, task_id = context_of(request), request.path_params["task_id"]
    back = rendering.back_of(form)
    try:
        result = await context.command_pool.run(lambda: _raise(context.operator, task_id, form))
    except Exception as error:
        page = inbox if back == inbox.path else task_page
        return await rendering.respond_again(request, page, {**form, "task": task_id}, error)
    return rendering.redirect(request, back, rendering.sentence(result.message) + ".")


def _raise(operator: Operator, task_id: str, form: Form) -> CommandResult:
    tokens, usd, minutes = (_number(form, name) for name in ("tokens", "usd", "minutes"))
    if not (tokens or usd or minutes):
        raise InvalidAnswerError("give tokens, dollars or minutes, greater than zero")
    return budget_pause.raise_budget(
        operator,
        task_id,
        step=form.get("step") or None,
        tokens=None if tokens is None else int(tokens),
        microusd=None if usd is None else round(usd * MICROUSD),
        seconds=None if minutes is None else minutes * 60,
    )


def _number(form: Form, name: str) -> float | None:
    text = form.get(name, "").strip()
    if not text:
        return None
    try:
        number = read_number(text, is_whole=name == "tokens")
    except ValueError as error:
        raise InvalidAnswerError(str(error)) from None
    if not 1 / MICROUSD <= number <= _MOST[name]:
        raise InvalidAnswerError(f"{text!r} is not between 0 and {_MOST[name]:,}")
    return number
