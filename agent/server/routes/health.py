"""Whether the agent is well, for those who look after it."""

from starlette.requests import Request
from starlette.responses import Response

from agent.server import examples
from agent.server.answers import answer
from agent.server.context import here
from agent.server.meters import MEDIA_TYPE, standing
from agent.server.shapes import Health
from agent.server.table import Table

table = Table("health", prefix="")


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
    if context.desk.database_trouble() is not None:
        return answer({"status": "unavailable", "because": ["database"]}, 503)
    # Not from memory, as the question to the database: a file is gone from one moment to the next.
    context.database.check_file()
    await context.readiness.check()
    troubles = sorted({what.split()[0] for what in context.troubles.messages()} - {"database"})
    if troubles:
        return answer({"status": "degraded", "because": troubles})
    return answer({"status": "ok"})


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
