"""The calls of a task's models and their tools."""

from typing import Annotated

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from agent.server.context import context_of
from agent.server.requests.responses import answer
from agent.server.requests.route_registry import RouteRegistry
from agent.server.routes.tasks import TaskId
from agent.server.schemas.calls import CallList
from agent.store.db.database import Connection
from agent.store.read import views
from agent.tasks.errors import NotFoundError
from agent.tasks.read_models import transcript

routes = RouteRegistry("calls")


@routes.route(
    "GET",
    "/tasks/{task_id}/calls",
    scope="read",
    returns=CallList,
    refuses={404: "No such task"},
    summary="The calls of a task",
)
async def list_calls(
    request: Request,
    task_id: TaskId,
    after: Annotated[
        str, Query(max_length=100, description="The `id` of the last call received.")
    ] = "",
) -> Response:
    """Return the calls of models and tools by a task's steps, in order."""

    def read(connection: Connection) -> Response:
        if not views.has_task(connection, task_id):
            raise NotFoundError(f"there is no task {task_id}")
        return answer({"calls": transcript.calls_after(connection, task_id, after)})

    return await context_of(request).read_pool.read(read)
