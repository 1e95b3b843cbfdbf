"""Snapshots of a task's context: append and read."""

from typing import Annotated

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from agent.server.context import caller, context_of
from agent.server.requests.paging import Cursor, page
from agent.server.requests.responses import answer
from agent.server.requests.route_registry import RouteRegistry
from agent.server.routes.tasks import TaskId
from agent.server.schemas.work import AppendSnapshotRequest, SnapshotDocument, SnapshotPage
from agent.tasks.operator import work_commands
from agent.tasks.read_models import work_documents

routes = RouteRegistry("snapshots")


@routes.route(
    "GET",
    "/tasks/{task_id}/snapshots",
    scope="read",
    returns=SnapshotPage,
    refuses={404: "No such task"},
    summary="Snapshots of a task's context",
)
async def list_snapshots(
    request: Request,
    task_id: TaskId,
    cursor: Cursor = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
) -> Response:
    """Return a page of snapshots, the oldest first."""
    snapshots = await context_of(request).read_pool.read(
        lambda connection: work_documents.snapshot_page(
            connection, task_id, after=cursor, most=limit + 1
        )
    )
    return answer(page("snapshots", snapshots, limit))


@routes.route(
    "GET",
    "/tasks/{task_id}/snapshots/latest",
    scope="read",
    returns=SnapshotDocument,
    refuses={404: "No such task, or it has no snapshot"},
    summary="The newest snapshot of a task",
)
async def latest_snapshot(
    request: Request,
    task_id: TaskId,
    label: Annotated[str | None, Query(description="Only with this label.", max_length=200)] = None,
) -> Response:
    """Return the snapshot that was appended last."""
    return answer(
        await context_of(request).read_pool.read(
            lambda connection: work_documents.latest_snapshot(connection, task_id, label)
        )
    )


@routes.route(
    "POST",
    "/tasks/{task_id}/snapshots",
    scope="operate",
    status=201,
    returns=SnapshotDocument,
    refuses={404: "No such task", 409: "The task has ended, or takes no more snapshots"},
    summary="Append a snapshot to a task's context",
)
async def append_snapshot(
    request: Request, task_id: TaskId, body: AppendSnapshotRequest
) -> Response:
    """Append a value; nothing changes it afterwards. With a `client_token` it may be repeated."""
    context = context_of(request)
    by = f"{caller(request).channel}:{caller(request).name}"
    snapshot_id = await context.command_pool.run(
        lambda: work_commands.append_snapshot(
            context.operator, task_id, body.value, body.label, body.parent, by, body.client_token
        )
    )
    document = await context.read_pool.read(
        lambda connection: work_documents.snapshot(connection, task_id, snapshot_id)
    )
    return answer(document, status=201)
