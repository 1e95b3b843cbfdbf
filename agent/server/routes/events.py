"""Events by cursor, and as a stream."""

from typing import Annotated

from fastapi import Header, Query
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from agent.server.context import Context, caller, context_of, still_allowed
from agent.server.problems import Problem
from agent.server.requests.responses import answer
from agent.server.requests.route_registry import RouteRegistry
from agent.server.schemas.events import EventPage
from agent.store.read import views
from agent.tasks.read_models import task_documents

routes = RouteRegistry("events")

After = Annotated[
    str | None, Query(description="Only events after this cursor.", examples=["0-1204"])
]
Task = Annotated[str | None, Query(description="Only events of this task.", max_length=100)]
Limit = Annotated[int, Query(ge=1, le=10_000)]


@routes.route("GET", "/events", scope="read", returns=EventPage, summary="Events by cursor")
async def list_events(
    request: Request,
    after: After = None,
    task: Task = None,
    limit: Limit = 100,
    *,
    newest: Annotated[
        bool, Query(description="The last events up to now, not the first ones after the cursor.")
    ] = False,
) -> Response:
    """Return events in commit order; a client that continues from `cursor` misses none."""
    _check(after)
    events = await context_of(request).read_pool.read(
        lambda connection: task_documents.read_events(
            connection, after, task, limit, is_newest=newest
        )
    )
    return answer({"events": events, "cursor": events[-1]["cursor"] if events else after})


@routes.route(
    "GET",
    "/events/stream",
    scope="read",
    summary="Events as they happen",
    response_class=StreamingResponse,
    responses={
        200: {
            "description": "Server-Sent Events: `id` is the cursor, `event` the type, `data` the"
            " event as JSON.",
            "content": {"text/event-stream": {"example": "id: 0-7\nevent: task.created\ndata: {}"}},
        }
    },
)
async def stream_events(
    request: Request,
    after: After = None,
    task: Task = None,
    last_event_id: Annotated[
        str | None,
        Header(alias="Last-Event-ID", description="The `id` of the last event received."),
    ] = None,
) -> Response:
    """Stream events from now on, or after a cursor; a client that lost the stream resumes it."""
    start = last_event_id or after
    _check(start)
    if start is None:
        start = await _latest(context_of(request))
    context, grant = context_of(request), caller(request)
    context.event_stream.check(grant)
    return StreamingResponse(
        context.event_stream.stream(
            context.read_pool, start, task, grant, lambda: still_allowed(request)
        ),
        media_type="text/event-stream",
    )


async def _latest(context: Context) -> str:
    xid, event_id = await context.read_pool.read(views.latest_event)
    return f"{xid}-{event_id}"


def _check(cursor: str | None) -> None:
    try:
        xid, event_id = task_documents.parse_cursor(cursor)
        if max(xid, event_id) >= 2**63:
            raise ValueError(f"{cursor!r} is not a cursor")
    except ValueError as error:
        raise Problem(422, "invalid", str(error), errors=[str(error)]) from None
