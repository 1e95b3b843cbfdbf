"""The API's own description."""

from starlette.requests import Request
from starlette.responses import Response

from agent.server.answers import answer
from agent.server.openapi import describe
from agent.server.table import Table

table = Table("description")


@table.route(
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
    """Give the OpenAPI description of everything here."""
    return answer(describe(request.app))
