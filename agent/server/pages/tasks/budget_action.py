"""Raises a budget that has paused a task, from the inbox or from the task's page."""

from starlette.requests import Request
from starlette.responses import Response

from agent.approvals.answering import InvalidAnswerError
from agent.core.money import MICROUSD
from agent.server.context import context_of
from agent.server.pages.framework import rendering
from agent.server.pages.framework.page_registry import PageRegistry
from agent.server.pages.framework.page_request import Form
from agent.server.pages.inbox.inbox import inbox
from agent.server.pages.tasks.task_page import task_page
from agent.tasks.operator import budget_pause
from agent.tasks.operator.operator import CommandResult, Operator

pages = PageRegistry("budget-action")


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
    numbers = {name: _number(form, name) for name in ("tokens", "usd", "minutes")}
    if not any(numbers.values()):
        raise InvalidAnswerError("give tokens, dollars or minutes, greater than zero")
    tokens, usd, minutes = numbers["tokens"], numbers["usd"], numbers["minutes"]
    return budget_pause.raise_budget(
        operator,
        task_id,
        step=form.get("step") or None,
        tokens=None if tokens is None else int(tokens),
        microusd=None if usd is None else round(usd * MICROUSD),
        seconds=None if minutes is None else minutes * 60,
    )


def _number(form: Form, name: str) -> float | None:
    text = form.get(name, "").strip().replace(",", "")
    if not text:
        return None
    try:
        number = float(text)
    except ValueError:
        raise InvalidAnswerError(f"{text!r} is not a number") from None
    if not 0 < number < 1e15:
        raise InvalidAnswerError(f"{text!r} is not a number greater than zero")
    return number
