"""Large values, by the hash of their content."""

from typing import Annotated, Final

from fastapi import Path
from starlette.requests import Request
from starlette.responses import Response

from agent.server.context import context_of
from agent.server.requests.route_registry import RouteRegistry
from agent.tasks.read_models import task_documents

routes = RouteRegistry("artifacts")

_EXAMPLE: Final = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
Hash = Annotated[
    str,
    Path(
        description="The hash, or its beginning.",
        pattern="^[0-9a-f]{6,64}$",
        examples=[_EXAMPLE],
    ),
]


@routes.route(
    "GET",
    "/artifacts/{hash}",
    scope="read",
    refuses={404: "No such artifact", 409: "Several hashes begin like this"},
    summary="A large value",
    response_class=Response,
    responses={
        200: {
            "description": "The stored value: JSON.",
            "content": {"application/json": {"example": "a long text"}},
        }
    },
)
async def get_artifact(request: Request, name: Annotated[Hash, Path(alias="hash")]) -> Response:
    """Return the value with this hash; task documents contain such values as well."""
    content = await context_of(request).read_pool.read(
        lambda connection: task_documents.find_artifact(connection, name)
    )
    return Response(content, media_type="application/json")
