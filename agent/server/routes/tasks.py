"""Tasks: start, list, show and control."""

from typing import Annotated, Any

from fastapi import Body, Path, Query
from fastapi.exceptions import RequestValidationError
from starlette.requests import Request
from starlette.responses import Response

from agent.core.state_machine import TaskStatus
from agent.server.context import caller, context_of, trace_of_caller
from agent.server.idempotency import IdempotencyKey
from agent.server.requests.paging import Cursor, PartOfId
from agent.server.requests.responses import answer
from agent.server.requests.route_registry import PREFIX, RouteRegistry
from agent.server.schemas.tasks import (
    CommandAnswer,
    CreatedTask,
    ForkRequest,
    NewTask,
    ReasonRequest,
    RetryRequest,
    TaskDocument,
    TaskPage,
)
from agent.store.read.activity import Activity
from agent.store.read.task_list import TaskFilter
from agent.tasks.operator.operator import CommandResult
from agent.tasks.read_models import task_documents, task_list

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
        trigger={"kind": "api", "by": caller(request).name} | trace_of_caller(request),
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
    status: Annotated[
        list[TaskStatus] | None,
        Query(description="Only tasks with this status; repeat it for several."),
    ] = None,
    activity: Annotated[
        list[Activity] | None,
        Query(
            description="Only tasks with this activity: the status, or `waiting`; repeat it for several."
        ),
    ] = None,
    workflow: Annotated[
        str | None, Query(description="Only tasks of this workflow.", max_length=200)
    ] = None,
    trigger: Annotated[
        str | None,
        Query(description="Only tasks that this schedule or watcher started.", max_length=400),
    ] = None,
    since: Annotated[
        str | None,
        Query(
            description="Only tasks created since then: how long ago (`2h`, `7d`), or a date or time.",
            max_length=40,
            examples=["7d"],
        ),
    ] = None,
    search: Annotated[
        str | None,
        Query(
            description="Only tasks with this text in what lists print of them, in their input, or in"
            " the output or error of a step, whatever the case and the accents. A page looks through the newest tasks for two seconds at"
            " most, so it may be short and still have a `next`. Values that are stored as artifacts"
            " are not searched.",
            min_length=1,
            max_length=task_list.MAX_SEARCH,
            examples=["Example Ltd"],
        ),
    ] = None,
    part: PartOfId = None,
    cursor: Cursor = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
    *,
    total: Annotated[
        bool, Query(description="Count how many tasks there are, up to 10,000.")
    ] = False,
) -> Response:
    """Return a page of tasks; new tasks do not shift pages."""
    wanted = TaskFilter(
        tuple(status or ()),
        tuple(activity or ()),
        workflow,
        trigger,
        _since(since, context_of(request).database.clock.now()),
        part,
        search,
    )
    return answer(
        await context_of(request).read_pool.read(
            lambda connection: task_list.page(connection, wanted, limit, cursor, has_total=total)
        )
    )


def _since(text: str | None, now: int) -> int | None:
    try:
        return None if text is None else task_list.parse_since(text, now)
    except ValueError as error:
        raise RequestValidationError([{"loc": ("query", "since"), "msg": str(error)}]) from None


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
async def pause(request: Request, task_id: TaskId, body: ReasonRequest | None = None) -> Response:
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
async def cancel(request: Request, task_id: TaskId, body: ReasonRequest | None = None) -> Response:
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
async def retry(request: Request, task_id: TaskId, body: RetryRequest | None = None) -> Response:
    """Run what has not succeeded again, in a new task; a second request returns the same new task."""
    is_latest = body is not None and body.latest
    return command_response(
        await context_of(request).command_pool.run(
            lambda: context_of(request).operator.retry(task_id, is_latest=is_latest)
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
    request: Request, task_id: TaskId, body: ForkRequest, key: IdempotencyKey = None
) -> Response:
    """Create a task that keeps the results before a step, if one is given, and runs the rest with changed inputs."""
    address = f"POST /tasks/{task_id}/fork"
    dedupe_key = await context_of(request).idempotency_keys.dedupe_key(
        caller(request), key, address, body.model_dump()
    )
    return command_response(
        await context_of(request).command_pool.run(
            lambda: context_of(request).operator.fork(
                task_id,
                body.from_step,
                body.input,
                dedupe_key=dedupe_key,
                is_latest=body.latest,
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
