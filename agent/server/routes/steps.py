"""The steps of a task: what they are, what they said, and what became of their effects."""

from typing import Annotated

from fastapi import Path, Query
from starlette.requests import Request
from starlette.responses import Response

from agent.server.context import caller, here
from agent.server.responses import answer
from agent.server.route_registry import RouteRegistry
from agent.server.routes.tasks import REFUSALS, TaskId, told
from agent.server.schemas import CommandAnswer, LogPage, Resolution, StepList, Transcript
from agent.store.db.database import Connection
from agent.store.read import views
from agent.tasks.errors import NotFoundError
from agent.tasks.read_models import task_documents, transcript

table = RouteRegistry("steps")

StepName = Annotated[
    str, Path(description="A step's name; an item's has its number.", examples=["lines[3]"])
]


@table.route(
    "GET",
    "/tasks/{task_id}/steps",
    scope="read",
    returns=StepList,
    refuses={404: "No such task"},
    summary="A task's steps",
)
async def list_steps(request: Request, task_id: TaskId) -> Response:
    """Give a task's steps in order, the items of a group after it."""
    found = await here(request).reading.read(
        lambda connection: task_documents.task_document(connection, task_id)
    )
    return answer({"steps": found["steps"]})


Attempt = Annotated[int | None, Query(ge=1, le=2**31, description="Only of this attempt.")]
After = Annotated[int, Query(ge=0, lt=2**63, description="`next` of the last page.")]
Limit = Annotated[int, Query(ge=1, le=10_000)]


@table.route(
    "GET",
    "/tasks/{task_id}/logs",
    scope="read",
    returns=LogPage,
    refuses={404: "No such task"},
    summary="What all its steps said",
)
async def read_all_logs(
    request: Request,
    task_id: TaskId,
    attempt: Attempt = None,
    after: After = 0,
    limit: Limit = 1000,
) -> Response:
    """Give what a task's steps wrote, the oldest first; ask again after `next` for what came since."""

    def read(connection: Connection) -> Response:
        if not views.has_task(connection, task_id):
            raise NotFoundError(f"there is no task {task_id}")
        return _logs(connection, task_id, None, attempt, after, limit)

    return await here(request).reading.read(read)


@table.route(
    "GET",
    "/tasks/{task_id}/steps/{name}/logs",
    scope="read",
    returns=LogPage,
    refuses={404: "No such task or step"},
    summary="What a step said",
)
async def read_logs(
    request: Request,
    task_id: TaskId,
    name: StepName,
    attempt: Attempt = None,
    after: After = 0,
    limit: Limit = 1000,
) -> Response:
    """Give what a step wrote, the oldest first; ask again after `next` for what came since."""

    def read(connection: Connection) -> Response:
        if not views.has_step(connection, task_id, name):
            raise NotFoundError(f"there is no task {task_id} with a step called {name!r}")
        return _logs(connection, task_id, name, attempt, after, limit)

    return await here(request).reading.read(read)


@table.route(
    "GET",
    "/tasks/{task_id}/steps/{name}/calls",
    scope="read",
    returns=Transcript,
    refuses={404: "No such task or step"},
    summary="What a step asked for and was given",
)
async def read_calls(request: Request, task_id: TaskId, name: StepName) -> Response:
    """Give all calls of a step in their order: of an agent, its whole conversation."""
    return answer(
        await here(request).reading.read(
            lambda connection: transcript.transcript(connection, task_id, name)
        )
    )


@table.route(
    "POST",
    "/tasks/{task_id}/steps/{name}/resolve",
    scope="approve",
    returns=CommandAnswer,
    refuses=REFUSALS,
    summary="Say what became of an effect",
)
async def resolve(request: Request, task_id: TaskId, name: StepName, asked: Resolution) -> Response:
    """Settle a step whose effect's outcome is unknown: it happened, it did not, or give it up."""
    context, by = here(request), caller(request).name
    return told(
        await context.commands.run(
            lambda: context.operator.resolve(task_id, name, asked.verdict, asked.output, by)
        )
    )


def _logs(
    connection: Connection,
    task_id: str,
    step: str | None,
    attempt: int | None,
    after: int,
    limit: int,
) -> Response:
    found = task_documents.step_logs(connection, task_id, step, attempt, after, limit)
    return answer({"logs": found, "next": found[-1]["id"] if found else after})
