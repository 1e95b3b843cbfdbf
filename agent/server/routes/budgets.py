"""What tasks use of models, and how they get more."""

from starlette.requests import Request
from starlette.responses import Response

from agent.server.context import here
from agent.server.problems import Problem
from agent.server.responses import answer
from agent.server.route_registry import RouteRegistry
from agent.server.routes.tasks import REFUSALS, TaskId, told
from agent.server.schemas import BudgetDocument, CommandAnswer, DayDocument, NewBudget
from agent.store.db.database import Connection
from agent.store.read import views
from agent.tasks.errors import NotFoundError
from agent.tasks.operator import budget_pause
from agent.tasks.read_models import spending
from agent.tasks.rules.budgets import MICROUSD

table = RouteRegistry("budgets")


@table.route(
    "GET",
    "/budget",
    scope="read",
    returns=DayDocument,
    summary="What all tasks have used of models today",
)
async def get_day(request: Request) -> Response:
    """Give what is taken of the day (UTC), calls whose use is not known included, and its limits."""
    limits, clock = here(request).settings.budget, here(request).database.clock
    return await here(request).reading.read(
        lambda connection: answer(spending.day_document(connection, limits, clock.now()))
    )


@table.route(
    "GET",
    "/tasks/{task_id}/budget",
    scope="read",
    returns=BudgetDocument,
    refuses={404: "No such task"},
    summary="What a task has used of models",
)
async def get_budget(request: Request, task_id: TaskId) -> Response:
    """Give what a task's calls of models used, and its budgets with what is taken of each."""

    def read(connection: Connection) -> Response:
        if not views.has_task(connection, task_id):
            raise NotFoundError(f"there is no task {task_id}")
        return answer(spending.budget_document(connection, task_id))

    return await here(request).reading.read(read)


@table.route(
    "POST",
    "/tasks/{task_id}/budget",
    scope="approve",
    returns=CommandAnswer,
    refuses=REFUSALS,
    summary="Set a task's budget anew",
)
async def set_budget(request: Request, task_id: TaskId, asked: NewBudget) -> Response:
    """Set what a task, or one of its steps, may use in all; a task that was paused for it goes on.

    It needs `approve`: a program must not lift the limit that it was given.
    """
    if asked.tokens is None and asked.usd is None and asked.seconds is None:
        raise Problem(422, "invalid", "give tokens, usd or seconds")
    usd = asked.usd
    operator = here(request).operator
    return told(
        await here(request).commands.run(
            lambda: budget_pause.raise_budget(
                operator,
                task_id,
                step=asked.step,
                tokens=asked.tokens,
                microusd=None if usd is None else round(usd * MICROUSD),
                seconds=asked.seconds,
            )
        )
    )
