"""The steps of a task: their state, logs, calls and unknown effects."""

from typing import Annotated

from fastapi import Path, Query
from starlette.requests import Request
from starlette.responses import Response

from agent.approvals import answering
from agent.server.context import caller, context_of
from agent.server.requests.responses import answer
from agent.server.requests.route_registry import RouteRegistry
from agent.server.routes.tasks import REFUSALS, TaskId, command_response
from agent.server.schemas.calls import Transcript
from agent.server.schemas.steps import LogPage, ResolveRequest, StepInspection, StepList
from agent.server.schemas.tasks import CommandAnswer
from agent.store.db.database import Connection
from agent.store.read import views
from agent.tasks.errors import NotFoundError
from agent.tasks.read_models import step_attempts, task_documents, transcript

routes = RouteRegistry("steps")

StepName = Annotated[
    str, Path(description="A step's name; an item's includes its number.", examples=["lines[3]"])
]


@routes.route(
    "GET",
    "/tasks/{task_id}/steps",
    scope="read",
    returns=StepList,
    refuses={404: "No such task"},
    summary="A task's steps",
)
async def list_steps(request: Request, task_id: TaskId) -> Response:
    """Return a task's steps in order, each group before its items."""
    document = await context_of(request).read_pool.read(
        lambda connection: task_documents.task_document(connection, task_id)
    )
    return answer({"steps": document["steps"]})


@routes.route(
    "GET",
    "/tasks/{task_id}/steps/{name}",
    scope="read",
    returns=StepInspection,
    refuses={404: "No such task or step"},
    summary="A step with its attempts",
)
async def read_step(request: Request, task_id: TaskId, name: StepName) -> Response:
    """Return a step and each attempt of it: configuration, output, error, calls, questions, log."""
    return answer(
        await context_of(request).read_pool.read(
            lambda connection: step_attempts.step_document(connection, task_id, name)
        )
    )


Attempt = Annotated[int | None, Query(ge=1, le=2**31, description="Only this attempt.")]
After = Annotated[int, Query(ge=0, lt=2**63, description="`next` of the previous page.")]
Before = Annotated[
    int | None,
    Query(
        ge=1,
        lt=2**63,
        description="The last pieces before this one, not the first ones after `after`.",
    ),
]
Limit = Annotated[int, Query(ge=1, le=10_000)]


@routes.route(
    "GET",
    "/tasks/{task_id}/logs",
    scope="read",
    returns=LogPage,
    refuses={404: "No such task"},
    summary="The logs of all steps of a task",
)
async def read_all_logs(
    request: Request,
    task_id: TaskId,
    attempt: Attempt = None,
    after: After = 0,
    before: Before = None,
    limit: Limit = 1000,
) -> Response:
    """Return the log lines of a task's steps, the oldest first; continue with `after` = `next`."""

    def read(connection: Connection) -> Response:
        if not views.has_task(connection, task_id):
            raise NotFoundError(f"there is no task {task_id}")
        return _logs(connection, task_id, None, attempt, after, before, limit)

    return await context_of(request).read_pool.read(read)


@routes.route(
    "GET",
    "/tasks/{task_id}/steps/{name}/logs",
    scope="read",
    returns=LogPage,
    refuses={404: "No such task or step"},
    summary="The logs of a step",
)
async def read_logs(
    request: Request,
    task_id: TaskId,
    name: StepName,
    attempt: Attempt = None,
    after: After = 0,
    before: Before = None,
    limit: Limit = 1000,
) -> Response:
    """Return the log lines of a step, the oldest first; continue with `after` = `next`."""

    def read(connection: Connection) -> Response:
        if not views.has_step(connection, task_id, name):
            raise NotFoundError(f"there is no task {task_id} with a step called {name!r}")
        return _logs(connection, task_id, name, attempt, after, before, limit)

    return await context_of(request).read_pool.read(read)


@routes.route(
    "GET",
    "/tasks/{task_id}/steps/{name}/calls",
    scope="read",
    returns=Transcript,
    refuses={404: "No such task or step"},
    summary="The calls of a step",
)
async def read_calls(request: Request, task_id: TaskId, name: StepName) -> Response:
    """Return all calls of a step in order: for an agent, its whole conversation."""
    return answer(
        await context_of(request).read_pool.read(
            lambda connection: transcript.transcript(connection, task_id, name)
        )
    )


@routes.route(
    "POST",
    "/tasks/{task_id}/steps/{name}/resolve",
    scope="approve",
    returns=CommandAnswer,
    refuses=REFUSALS,
    summary="Resolve an unknown effect",
)
async def resolve(
    request: Request, task_id: TaskId, name: StepName, body: ResolveRequest
) -> Response:
    """Resolve a step whose effect has an unknown result: it happened, it did not, or give up."""
    context, principal = context_of(request), caller(request).principal
    return command_response(
        await context.command_pool.run(
            lambda: answering.resolve(
                context.database, task_id, name, body.verdict, body.output, principal=principal
            )
        )
    )


def _logs(
    connection: Connection,
    task_id: str,
    step: str | None,
    attempt: int | None,
    after: int,
    before: int | None,
    limit: int,
) -> Response:
    logs = task_documents.step_logs(connection, task_id, step, attempt, after, limit, before)
    return answer({"logs": logs, "next": logs[-1]["id"] if logs else after})
