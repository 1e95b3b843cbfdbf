"""The stream that tells an open page to fetch itself again."""

from typing import Final

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from agent.server.context import caller, context_of, still_allowed
from agent.server.pages.framework.page_registry import PageRegistry

pages = PageRegistry("live")

_MAX_TASKS: Final = 50
_MIN_SECONDS: Final = 2.0


@pages.stream("/live")
async def live(request: Request) -> Response:
    """Stream changes of the tasks in `task`, or of all; `every` asks for a message now and then."""
    context, grant = context_of(request), caller(request)
    context.live_feed.check(grant)
    tasks = frozenset(request.query_params.getlist("task")[:_MAX_TASKS])
    every = request.query_params.get("every", "")
    every_seconds = max(_MIN_SECONDS, float(every)) if every.isdecimal() else None
    return StreamingResponse(
        context.live_feed.stream(tasks, every_seconds, grant, lambda: still_allowed(request)),
        media_type="text/event-stream",
    )
