"""The result of a task, now or as soon as there is one."""

import asyncio
from typing import Annotated, Any, Final, Literal

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from agent.server.context import Context, caller, context_of, still_allowed, while_allowed
from agent.server.requests.responses import answer
from agent.server.requests.route_registry import RouteRegistry
from agent.server.routes.tasks import TaskId
from agent.server.schemas.tasks import TaskResult
from agent.tasks.read_models import task_results

routes = RouteRegistry("tasks")

MAX_WAIT_SECONDS: Final = 300
_FIRST_POLL_SECONDS: Final = 0.05
_LONGEST_POLL_SECONDS: Final = 1.0


@routes.route(
    "GET",
    "/tasks/{task_id}/result",
    scope="read",
    returns=TaskResult,
    refuses={404: "No such task"},
    summary="A task's result",
)
async def get_result(
    request: Request,
    task_id: TaskId,
    wait: Annotated[
        float, Query(ge=0, le=MAX_WAIT_SECONDS, description="Seconds to wait for it at most.")
    ] = 0,
    until: Annotated[
        Literal["attention", "end"],
        Query(
            description="Wait until the task has ended; with `attention` also until it needs a person or a program."
        ),
    ] = "attention",
) -> Response:
    """Return how a task ended, or what it needs to go on; wait for that if asked to."""
    context, grant = context_of(request), caller(request)
    if not wait or context.waiting_results.is_full(grant):
        # Each that waits occupies a request: with too many of them others would be refused.
        return answer(await _wait_for(context, task_id, 0, until))
    with context.waiting_results.taken(grant):
        waiting = _wait_for(context, task_id, wait, until)
        return answer(await while_allowed(lambda: still_allowed(request), waiting))


async def _wait_for(context: Context, task_id: str, wait: float, until: str) -> dict[str, Any]:
    loop = asyncio.get_running_loop()
    give_up, delay = loop.time() + wait, _FIRST_POLL_SECONDS
    while True:
        result = await context.read_pool.read(
            lambda connection: task_results.result_document(connection, task_id)
        )
        is_done = result["is_over"] or (until == "attention" and result["needs"])
        remaining = give_up - loop.time()
        # A server that stops answers at once: the caller asks the next one.
        if is_done or remaining <= 0 or not context.task_submitter.is_open:
            return result
        # Polled, not woken: under load every commit would wake every caller.
        await asyncio.sleep(min(delay, remaining))
        delay = min(delay * 1.5, _LONGEST_POLL_SECONDS)
