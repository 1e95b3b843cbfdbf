"""Queues, leases and dead letters of external workers, for operators."""

from typing import Annotated

from fastapi import Path, Query
from starlette.requests import Request
from starlette.responses import Response

from agent.approvals import answering
from agent.core.local_zone import machine_zone
from agent.core.scopes import QUEUE_PATTERN
from agent.server.context import caller, context_of
from agent.server.examples import work as work_examples
from agent.server.requests.paging import Cursor, page
from agent.server.requests.responses import answer
from agent.server.requests.route_registry import RouteRegistry
from agent.server.schemas.work import RequeueRequest, ResumeWorkRequest
from agent.server.schemas.work_queues import (
    CheckedLeases,
    DeadLetterPage,
    QueueList,
    WorkCommand,
)
from agent.tasks.operator import work_commands
from agent.tasks.operator.operator import CommandResult
from agent.tasks.read_models import work_documents
from agent.triggers.commands.command_request import later

routes = RouteRegistry("work")

WorkId = Annotated[
    str,
    Path(
        max_length=100,
        description="`id` of the work",
        examples=[work_examples.CLAIMED_WORK["work"][0]["id"]],
    ),
]


@routes.route(
    "GET", "/work/queues", scope="read", returns=QueueList, summary="Queues of external workers"
)
async def list_queues(request: Request) -> Response:
    """Return each queue with open work or dead letters: its depth, its leases, who has them."""
    return answer(await context_of(request).read_pool.read(work_documents.queues))


@routes.route("GET", "/work/dead", scope="read", returns=DeadLetterPage, summary="Dead letters")
async def list_dead_letters(
    request: Request,
    queue: Annotated[
        str | None, Query(description="Only of this queue.", pattern=QUEUE_PATTERN)
    ] = None,
    code: Annotated[
        str | None,
        Query(description="Only with this error.", pattern="^[a-z][a-z0-9_]{0,63}$"),
    ] = None,
    cursor: Cursor = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
) -> Response:
    """Return work whose step has failed and whose task was not retried, the newest first."""
    letters = await context_of(request).read_pool.read(
        lambda connection: work_documents.dead_letters(
            connection, queue=queue, code=code, before=cursor, most=limit + 1
        )
    )
    return answer(page("dead", letters, limit))


@routes.route(
    "POST",
    "/work/dead/{work_id}/requeue",
    scope="operate",
    status=201,
    returns=WorkCommand,
    refuses={404: "No such dead letter", 409: "Its task cannot be retried now"},
    summary="Requeue a dead letter",
)
async def requeue_dead_letter(
    request: Request, work_id: WorkId, body: RequeueRequest | None = None
) -> Response:
    """Retry its task, which keeps what succeeded; a second request returns the same task."""
    context, body = context_of(request), body or RequeueRequest()
    now = context.database.clock.now()
    not_before = None if body.not_before is None else later(body.not_before, machine_zone(), now)
    result = await context.command_pool.run(
        lambda: work_commands.requeue_dead(
            context.operator, context.database, work_id, not_before, body.reason
        )
    )
    return answer(_document(result), status=201)


@routes.route(
    "POST",
    "/work/expire",
    scope="operate",
    returns=CheckedLeases,
    refuses={409: "This process answers no workers"},
    summary="Check all leases now",
)
async def expire_leases(request: Request) -> Response:
    """Expire the leases whose time is over, and return which: the agent does it by itself, so most often none.

    Only time in which the agent answers counts, so none ends earlier than by itself; `kept` has those
    that last all the same, with the reason.
    """
    return answer(await context_of(request).work.expire())


@routes.route(
    "POST",
    "/work/items/{work_id}/resume",
    scope="approve",
    returns=WorkCommand,
    refuses={
        403: "The token's scopes, or the question's own list of people, do not allow it",
        404: "No such work",
        409: "It does not wait for a person",
    },
    summary="Resume parked work",
)
async def resume_work(
    request: Request, work_id: WorkId, body: ResumeWorkRequest | None = None
) -> Response:
    """Answer the question of a worker, and put its work back into its queue."""
    context, body = context_of(request), body or ResumeWorkRequest()
    principal = caller(request).principal
    result = await context.command_pool.run(
        lambda: answering.resume_work(
            context.database, work_id, body.value, body.reason, principal=principal
        )
    )
    return answer(_document(result))


def _document(result: CommandResult) -> dict[str, object]:
    return {"changed": result.is_changed, "message": result.message, "task_id": result.task_id}
