"""Tasks: start, list, show and control."""

from typing import Annotated, Any

from fastapi import Body, Path, Query
from starlette.requests import Request
from starlette.responses import Response

from agent.core.state_machine import TaskStatus
from agent.server.context import caller, context_of
from agent.server.idempotency import IdempotencyKey
from agent.server.paging import Cursor, PartOfId, page
from agent.server.responses import answer
from agent.server.route_registry import PREFIX, RouteRegistry
from agent.server.schemas.tasks import (
    CommandAnswer,
    CreatedTask,
    Fork,
    NewTask,
    Reason,
    TaskDocument,
    TaskPage,
)
from agent.store.read.activity import Activity
from agent.tasks.operator.operator import CommandResult
from agent.tasks.read_models import task_documents

routes = RouteRegistry("tasks")

REFUSALS = {404: "No such task or step", 409: "Not allowed in this state"}
TaskId = Annotated[str, Path(max_length=100, examples=["0199d2c4-7d5e-7c31-9d0f-3f1f7b6c2a10"])]


@routes.route(
    "POST",
    "/workflows/{name}/tasks",
    scope="operate",
    status=201,
    returns=CreatedTask,
    refuses={404: "No such workflow"},
    summary="Start a workflow",
)
async def create_task(
    request: Request,
    name: Annotated[str, Path(max_length=200, examples=["invoice-triage"])],
    body: NewTask | None = None,
    key: IdempotencyKey = None,
) -> Response:
    """Create a task and start it. A 201 response means that the task is durable."""
    body = body or NewTask()
    workflow = await context_of(request).task_submitter.workflow(name)
    address = f"POST /workflows/{name}/tasks"
    task_id = await context_of(request).task_submitter.submit(
        workflow,
        body.input,
        trigger={"kind": "api", "by": caller(request).name},
        priority=body.priority,
        dedupe_key=await context_of(request).idempotency_keys.dedupe_key(
            caller(request), key, address, body.model_dump()
        ),
    )
    url = f"{PREFIX}/tasks/{task_id}"
    return answer(
        {"id": task_id, "workflow": name, "url": url}, status=201, headers={"Location": url}
    )


@routes.route("GET", "/tasks", scope="read", returns=TaskPage, summary="Tasks, the newest first")
async def list_tasks(
    request: Request,
    status: Annotated[TaskStatus | None, Query(description="Only tasks with this status.")] = None,
    activity: Annotated[
        Activity | None,
        Query(description="Only tasks with this activity: the status, or `waiting`."),
    ] = None,
    workflow: Annotated[
        str | None, Query(description="Only tasks of this workflow.", max_length=200)
    ] = None,
    part: PartOfId = None,
    cursor: Cursor = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
) -> Response:
    """Return a page of tasks; new tasks do not shift pages."""
    tasks = await context_of(request).read_pool.read(
        lambda connection: task_documents.list_tasks(
            connection, status, workflow, limit + 1, cursor, part, activity
        )
    )
    return answer(page("tasks", tasks, limit))


@routes.route(
    "GET",
    "/tasks/{task_id}",
    scope="read",
    returns=TaskDocument,
    refuses={404: "No such task"},
    summary="Everything about a task",
)
async def get_task(request: Request, task_id: TaskId) -> Response:
    """Return the task's document: the same that `agent show --json` prints."""
    return answer(
        await context_of(request).read_pool.read(
            lambda connection: task_documents.task_document(connection, task_id)
        )
    )


@routes.route(
    "POST",
    "/tasks/{task_id}/pause",
    scope="operate",
    returns=CommandAnswer,
    refuses=REFUSALS,
    summary="Pause a task",
)
async def pause(request: Request, task_id: TaskId, body: Reason | None = None) -> Response:
    """Start nothing new; running steps finish, or stop at their next checkpoint."""
    reason = body.reason if body else None
    return command_response(
        await context_of(request).command_pool.run(
            lambda: context_of(request).operator.pause(task_id, reason)
        )
    )


@routes.route(
    "POST",
    "/tasks/{task_id}/resume",
    scope="operate",
    returns=CommandAnswer,
    refuses=REFUSALS,
    summary="Resume a task",
)
async def resume(request: Request, task_id: TaskId) -> Response:
    """Continue a paused task."""
    return command_response(
        await context_of(request).command_pool.run(
            lambda: context_of(request).operator.resume(task_id)
        )
    )


@routes.route(
    "POST",
    "/tasks/{task_id}/cancel",
    scope="operate",
    returns=CommandAnswer,
    refuses=REFUSALS,
    summary="Cancel a task",
)
async def cancel(request: Request, task_id: TaskId, body: Reason | None = None) -> Response:
    """End a task now; its running steps are stopped."""
    reason = body.reason if body else None
    return command_response(
        await context_of(request).command_pool.run(
            lambda: context_of(request).operator.cancel(task_id, reason)
        )
    )


@routes.route(
    "POST",
    "/tasks/{task_id}/retry",
    scope="operate",
    returns=CommandAnswer,
    refuses=REFUSALS,
    summary="Retry a task",
)
async def retry(request: Request, task_id: TaskId) -> Response:
    """Run what has not succeeded again, in a new task; a second request returns the same new task."""
    return command_response(
        await context_of(request).command_pool.run(
            lambda: context_of(request).operator.retry(task_id)
        )
    )


@routes.route(
    "POST",
    "/tasks/{task_id}/fork",
    scope="operate",
    returns=CommandAnswer,
    refuses=REFUSALS,
    summary="Run again from a step",
)
async def fork(
    request: Request, task_id: TaskId, body: Fork, key: IdempotencyKey = None
) -> Response:
    """Create a task that keeps the results before a step and runs the rest with changed inputs."""
    address = f"POST /tasks/{task_id}/fork"
    dedupe_key = await context_of(request).idempotency_keys.dedupe_key(
        caller(request), key, address, body.model_dump()
    )
    return command_response(
        await context_of(request).command_pool.run(
            lambda: context_of(request).operator.fork(
                task_id, body.from_step, body.input, dedupe_key=dedupe_key
            )
        )
    )


@routes.route(
    "POST",
    "/tasks/{task_id}/signals/{name}",
    scope="operate",
    returns=CommandAnswer,
    refuses=REFUSALS,
    summary="Send a signal",
)
async def signal(
    request: Request,
    task_id: TaskId,
    name: Annotated[str, Path(max_length=200, examples=["go"])],
    payload: Annotated[Any, Body(description="The signal's value: any JSON, or nothing.")] = None,
) -> Response:
    """Send a signal with a value to a task; it is kept until a step consumes it."""
    return command_response(
        await context_of(request).command_pool.run(
            lambda: context_of(request).operator.signal(task_id, name, payload)
        )
    )


def command_response(result: CommandResult) -> Response:
    """Return the response to a command."""
    return answer(
        {"changed": result.is_changed, "message": result.message, "task_id": result.task_id}
    )
