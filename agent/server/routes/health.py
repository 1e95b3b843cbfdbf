"""Whether the agent is well, for those who look after it."""

import structlog
from starlette.requests import Request
from starlette.responses import Response

from agent.core.log_limit import LogLimit
from agent.server import examples
from agent.server.context import here
from agent.server.metrics import MEDIA_TYPE, standing
from agent.server.responses import answer
from agent.server.route_registry import RouteRegistry
from agent.server.schemas import Health
from agent.store.db.database import StoreError

log = structlog.get_logger(__name__)

table = RouteRegistry("health", prefix="")

_troubles = LogLimit(most=10, window_seconds=60.0)
"""Anybody may ask, as often as they like."""


@table.route("GET", "/healthz", scope="public", returns=Health, summary="Is it alive?")
async def healthz() -> Response:
    """Answer: that alone says that the process lives. No token is needed."""
    return answer({"status": "ok"})


@table.route("GET", "/readyz", scope="public", returns=Health, summary="Can it work?")
async def readyz(request: Request) -> Response:
    """Say whether tasks can be taken: the database can be used and nothing starts or stops.

    While the store of large values does not answer, tasks can be taken and those that need it wait:
    the status is then `degraded`, with 200.
    """
    context = here(request)
    if not context.desk.is_open:
        return answer({"status": "stopping"}, 503)
    if not context.startup.has_workflows:
        return answer({"status": "starting"}, 503)
    if context.desk.database_problem() is not None:
        return _without_database()
    try:
        # Not from memory, as the question to the database: a file is gone within a moment.
        context.database.check_file()
        await context.readiness.check()
    except StoreError as error:
        held_back = _troubles.admit()
        if held_back is not None:
            log.warning("api.unavailable", error=error.message, held_back=held_back)
        return _without_database()
    problems = sorted({what.split()[0] for what in context.health.messages()} - {"database"})
    if problems:
        return answer({"status": "degraded", "because": problems})
    return answer({"status": "ok"})


def _without_database() -> Response:
    return answer({"status": "unavailable", "because": ["database"]}, 503)


@table.route(
    "GET",
    "/metrics",
    scope="read",
    summary="Figures for Prometheus",
    responses={
        200: {
            "content": {"text/plain": {"example": examples.METRICS}},
            "description": "Prometheus's text format",
        }
    },
    response_class=Response,
)
async def metrics(request: Request) -> Response:
    """Give tasks and steps by state, turns, queue age, attempts, unknowns, approvals and spend."""
    clock = here(request).database.clock
    now = await here(request).reading.read(lambda connection: standing(connection, clock))
    events = await here(request).event_counts.current()
    return Response(here(request).meters.exposition(now, events), media_type=MEDIA_TYPE)
