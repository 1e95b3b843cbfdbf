"""Health, readiness and metrics, for monitoring."""

import asyncio

import structlog
from starlette.requests import Request
from starlette.responses import Response

from agent.core.logs.log_limit import LogLimit
from agent.server.context import context_of
from agent.server.examples import operation as operation_examples
from agent.server.monitoring.exposition import MEDIA_TYPE
from agent.server.monitoring.host_metrics import read_host
from agent.server.monitoring.metrics import read_gauges
from agent.server.requests.responses import answer
from agent.server.requests.route_registry import RouteRegistry
from agent.server.schemas.health import Health
from agent.store.db.database import StoreError

log = structlog.get_logger(__name__)

routes = RouteRegistry("health", prefix="")

_troubles = LogLimit(most=10, window_seconds=60.0)
"""`/readyz` needs no token, so its log lines are limited."""


@routes.route("GET", "/healthz", scope="public", returns=Health, summary="Is it alive?")
async def healthz() -> Response:
    """Return 200 as long as the process runs. No token is needed."""
    return answer({"status": "ok"})


@routes.route("GET", "/readyz", scope="public", returns=Health, summary="Can it work?")
async def readyz(request: Request) -> Response:
    """Return 200 if tasks are accepted: the database works, and the agent is not starting or stopping.

    While the store of large values does not respond, tasks are accepted and those that need it
    wait: the status is then `degraded`, with 200. So it is while disk space is low; when hardly any
    is left it is `unavailable`.
    """
    context = context_of(request)
    if not context.task_submitter.is_open:
        return answer({"status": "stopping"}, 503)
    if not context.startup.has_workflows:
        return answer({"status": "starting"}, 503)
    if context.task_submitter.database_problem() is not None:
        return _without_database()
    try:
        # Not cached, unlike the query: a deleted file must show at once.
        context.database.check_file()
        await context.readiness.check()
    except StoreError as error:
        held_back = _troubles.admit()
        if held_back is not None:
            log.warning("api.unavailable", error=error.message, held_back=held_back)
        return _without_database()
    disk = context.health.problem("disk")
    if disk is not None and disk.is_certain:
        return answer({"status": "unavailable", "because": ["disk"]}, 503)
    problems = sorted({what.split()[0] for what in context.health.messages()} - {"database"})
    if problems:
        return answer({"status": "degraded", "because": problems})
    return answer({"status": "ok"})


def _without_database() -> Response:
    return answer({"status": "unavailable", "because": ["database"]}, 503)


@routes.route(
    "GET",
    "/metrics",
    scope="read",
    summary="Metrics for Prometheus",
    responses={
        200: {
            "content": {"text/plain": {"example": operation_examples.METRICS}},
            "description": "Prometheus's text format",
        }
    },
    response_class=Response,
)
async def metrics(request: Request) -> Response:
    """Return tasks and steps by status, commits, queue age, attempts, unknowns, approvals and spend."""
    context = context_of(request)
    clock = context.database.clock
    gauges = await context.read_pool.read(lambda connection: read_gauges(connection, clock))
    host = await asyncio.to_thread(read_host, context.settings, context.database)
    events = await context.event_counts.current()
    return Response(context.metrics.exposition(gauges, host, events), media_type=MEDIA_TYPE)
