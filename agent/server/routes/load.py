"""The load of the agent at this moment."""

from starlette.requests import Request
from starlette.responses import Response

from agent.server.context import context_of
from agent.server.requests.responses import answer
from agent.server.requests.route_registry import RouteRegistry
from agent.server.schemas.load import LoadDocument
from agent.tasks.read_models import load

routes = RouteRegistry("health")


@routes.route(
    "GET", "/load", scope="read", returns=LoadDocument, summary="What runs at this moment"
)
async def get_load(request: Request) -> Response:
    """Return workers, slots, the queue, the steps that run for longest, and today's spend."""
    context = context_of(request)
    settings, clock = context.settings, context.database.clock
    return await context.read_pool.read(
        lambda connection: answer(load.load_document(connection, settings, clock.now()))
    )
