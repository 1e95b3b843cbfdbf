"""Budgets: what tasks have used of models, and their limits."""

from starlette.requests import Request
from starlette.responses import Response

from agent.core.money import MICROUSD
from agent.server.context import context_of
from agent.server.problems import Problem
from agent.server.requests.responses import answer
from agent.server.requests.route_registry import RouteRegistry
from agent.server.routes.tasks import REFUSALS, TaskId, command_response
from agent.server.schemas.budgets import BudgetDocument, DayDocument, NewBudget
from agent.server.schemas.tasks import CommandAnswer
from agent.store.db.database import Connection
from agent.store.read import views
from agent.tasks.errors import NotFoundError
from agent.tasks.operator import budget_pause
from agent.tasks.read_models import spending

routes = RouteRegistry("budgets")


@routes.route(
    "GET",
    "/budget",
    scope="read",
    returns=DayDocument,
    summary="What all tasks have used of models today",
)
async def get_day(request: Request) -> Response:
    """Return what was used today (UTC), calls of unknown use included, and the limits of a day."""
    limits, clock = context_of(request).settings.budget, context_of(request).database.clock
    return await context_of(request).read_pool.read(
        lambda connection: answer(spending.day_document(connection, limits, clock.now()))
    )


@routes.route(
    "GET",
    "/tasks/{task_id}/budget",
    scope="read",
    returns=BudgetDocument,
    refuses={404: "No such task"},
    summary="What a task has used of models",
)
async def get_budget(request: Request, task_id: TaskId) -> Response:
    """Return what a task's calls of models used, and its budgets with what was used of each."""

    def read(connection: Connection) -> Response:
        if not views.has_task(connection, task_id):
            raise NotFoundError(f"there is no task {task_id}")
        return answer(spending.budget_document(connection, task_id))

    return await context_of(request).read_pool.read(read)


@routes.route(
    "POST",
    "/tasks/{task_id}/budget",
    scope="approve",
    returns=CommandAnswer,
    refuses=REFUSALS,
    summary="Set a task's budget",
)
async def set_budget(request: Request, task_id: TaskId, body: NewBudget) -> Response:
    """Set what a task, or one of its steps, may use in total; resume a task paused by its budget.

    This needs the scope `approve`: a program must not raise its own limit.
    """
    if body.tokens is None and body.usd is None and body.seconds is None:
        raise Problem(422, "invalid", "give tokens, usd or seconds")
    usd = body.usd
    operator = context_of(request).operator
    return command_response(
        await context_of(request).command_pool.run(
            lambda: budget_pause.raise_budget(
                operator,
                task_id,
                step=body.step,
                tokens=body.tokens,
                microusd=None if usd is None else round(usd * MICROUSD),
                seconds=body.seconds,
            )
        )
    )
