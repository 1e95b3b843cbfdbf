"""The OpenAPI description of the API."""

from starlette.requests import Request
from starlette.responses import Response

from agent.server.requests.openapi import describe
from agent.server.requests.responses import answer
from agent.server.requests.route_registry import RouteRegistry

routes = RouteRegistry("description")


@routes.route(
    "GET",
    "/openapi.json",
    scope="read",
    summary="This description",
    responses={
        200: {
            "description": "OpenAPI",
            "content": {"application/json": {"example": {"openapi": "3.1.0"}}},
        }
    },
)
async def openapi(request: Request) -> Response:
    """Return the OpenAPI description of this API."""
    return answer(describe(request.app))
