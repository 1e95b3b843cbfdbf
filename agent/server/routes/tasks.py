"""Tasks: started, listed, shown and steered."""

from typing import Annotated, Any

from fastapi import Body, Path, Query
from starlette.requests import Request
from starlette.responses import Response

from agent.core.state_machine import TaskStatus
from agent.server.context import caller, here
from agent.server.idempotency import IdempotencyKey
from agent.server.paging import Cursor, PartOfId, page
from agent.server.responses import answer
from agent.server.route_registry import PREFIX, RouteRegistry
from agent.server.schemas import (
    CommandAnswer,
    CreatedTask,
    Fork,
    NewTask,
    Reason,
    TaskDocument,
    TaskPage,
)
from agent.store.read.activity import Activity
from agent.tasks.operator.operator import Answer
from agent.tasks.read_models import task_documents

table = RouteRegistry("tasks")

REFUSALS = {404: "No such task or step", 409: "Not allowed in this state"}
TaskId = Annotated[str, Path(max_length=100, examples=["0199d2c4-7d5e-7c31-9d0f-3f1f7b6c2a10"])]


@table.route(
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
    asked: NewTask | None = None,
    key: IdempotencyKey = None,
) -> Response:
    """Create a task and start it. When this answers, it is on record and survives anything."""
    asked = asked or NewTask()
    workflow = await here(request).desk.workflow(name)
    address = f"POST /workflows/{name}/tasks"
    task_id = await here(request).desk.submit(
        workflow,
        asked.input,
        trigger={"kind": "api", "by": caller(request).name},
        priority=asked.priority,
        dedupe_key=await here(request).repeats.dedupe_key(
            caller(request), key, address, asked.model_dump()
        ),
    )
    url = f"{PREFIX}/tasks/{task_id}"
    return answer(
        {"id": task_id, "workflow": name, "url": url}, status=201, headers={"Location": url}
    )


@table.route("GET", "/tasks", scope="read", returns=TaskPage, summary="Tasks, the newest first")
async def list_tasks(
    request: Request,
    status: Annotated[TaskStatus | None, Query(description="Only these.")] = None,
    activity: Annotated[
        Activity | None,
        Query(description="Only these: a status, where `waiting` is told from `running`."),
    ] = None,
    workflow: Annotated[str | None, Query(description="Only of this one.", max_length=200)] = None,
    part: PartOfId = None,
    cursor: Cursor = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
) -> Response:
    """Give a page of tasks; pages do not shift when new tasks come."""
    found = await here(request).reading.read(
        lambda connection: task_documents.list_tasks(
            connection, status, workflow, limit + 1, cursor, part, activity
        )
    )
    return answer(page("tasks", found, limit))


@table.route(
    "GET",
    "/tasks/{task_id}",
    scope="read",
    returns=TaskDocument,
    refuses={404: "No such task"},
    summary="Everything about a task",
)
async def get_task(request: Request, task_id: TaskId) -> Response:
    """Give the task's document: the same that `agent show --json` prints."""
    return answer(
        await here(request).reading.read(
            lambda connection: task_documents.task_document(connection, task_id)
        )
    )


@table.route(
    "POST",
    "/tasks/{task_id}/pause",
    scope="operate",
    returns=CommandAnswer,
    refuses=REFUSALS,
    summary="Pause a task",
)
async def pause(request: Request, task_id: TaskId, asked: Reason | None = None) -> Response:
    """Start nothing new; steps in flight finish, or stop at their next checkpoint."""
    reason = asked.reason if asked else None
    return told(
        await here(request).commands.run(lambda: here(request).operator.pause(task_id, reason))
    )


@table.route(
    "POST",
    "/tasks/{task_id}/resume",
    scope="operate",
    returns=CommandAnswer,
    refuses=REFUSALS,
    summary="Resume a task",
)
async def resume(request: Request, task_id: TaskId) -> Response:
    """Let a paused task go on."""
    return told(await here(request).commands.run(lambda: here(request).operator.resume(task_id)))


@table.route(
    "POST",
    "/tasks/{task_id}/cancel",
    scope="operate",
    returns=CommandAnswer,
    refuses=REFUSALS,
    summary="Cancel a task",
)
async def cancel(request: Request, task_id: TaskId, asked: Reason | None = None) -> Response:
    """End a task now; its steps in flight are stopped."""
    reason = asked.reason if asked else None
    return told(
        await here(request).commands.run(lambda: here(request).operator.cancel(task_id, reason))
    )


@table.route(
    "POST",
    "/tasks/{task_id}/retry",
    scope="operate",
    returns=CommandAnswer,
    refuses=REFUSALS,
    summary="Retry a task",
)
async def retry(request: Request, task_id: TaskId) -> Response:
    """Run again what has not succeeded, as a new task; asked twice it is the same new task."""
    return told(await here(request).commands.run(lambda: here(request).operator.retry(task_id)))


@table.route(
    "POST",
    "/tasks/{task_id}/fork",
    scope="operate",
    returns=CommandAnswer,
    refuses=REFUSALS,
    summary="Run again from a step on",
)
async def fork(
    request: Request, task_id: TaskId, asked: Fork, key: IdempotencyKey = None
) -> Response:
    """Make a new task that keeps what came before a step, and runs the rest with other inputs."""
    address = f"POST /tasks/{task_id}/fork"
    own = await here(request).repeats.dedupe_key(caller(request), key, address, asked.model_dump())
    return told(
        await here(request).commands.run(
            lambda: here(request).operator.fork(
                task_id, asked.from_step, asked.input, dedupe_key=own
            )
        )
    )


@table.route(
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
    payload: Annotated[Any, Body(description="What it carries: any JSON, or nothing.")] = None,
) -> Response:
    """Send a signal with a value to a task; it keeps until a step takes it."""
    return told(
        await here(request).commands.run(
            lambda: here(request).operator.signal(task_id, name, payload)
        )
    )


def told(done: Answer) -> Response:
    """Return what a command did."""
    return answer({"changed": done.is_changed, "message": done.message, "task_id": done.task_id})
