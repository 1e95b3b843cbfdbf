"""The running agent at a glance, and its settings."""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from agent import __version__, overview
from agent.core.clock import to_iso
from agent.server.context import context_of
from agent.server.problems import Problem
from agent.server.requests.responses import answer
from agent.server.requests.route_registry import RouteRegistry
from agent.server.schemas.settings import ReloadDocument, StatusDocument
from agent.store.db.database import Connection

routes = RouteRegistry("agent")


@routes.route(
    "GET", "/status", scope="read", returns=StatusDocument, summary="The agent at a glance"
)
async def get_status(request: Request) -> Response:
    """Return what runs, what waits for a person, what went wrong lately, and what comes next."""
    context = context_of(request)
    clock, settings = context.database.clock, context.settings
    about = {"version": __version__, "started_at": to_iso(context.startup.started_at)}

    def read(connection: Connection) -> dict[str, Any]:
        return about | overview.overview_document(connection, settings, clock.now())

    return answer(await context.read_pool.read(read))


@routes.route(
    "POST",
    "/reload",
    scope="admin",
    returns=ReloadDocument,
    refuses={409: "This agent cannot reload its configuration"},
    summary="Read the configuration again",
)
async def reload_settings(request: Request) -> Response:
    """Apply what changed in the configuration file, as far as a running agent can.

    The response names the keys that were applied and those that need a restart. A file with problems
    is refused as a whole (422), and the old settings stay in force.
    """
    run = context_of(request).reload
    if run is None:
        raise Problem(409, "refused", "this agent cannot reload its configuration")
    document = await run()
    if document["problems"]:
        problems = "\n".join(document["problems"])
        raise Problem(
            422,
            "invalid",
            f"{problems}\nthe configuration is refused, and the old settings stay in force",
        )
    return answer({name: document[name] for name in ("applied", "needs_restart", "at")})
