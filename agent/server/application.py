"""The application: the door, the routes behind it, and the parts that they work with."""

import asyncio
from http import HTTPStatus
from typing import Any

import uvicorn  # noqa: F401  (loaded with the rest)
from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

# Registers the kinds of steps: a workflow that is given here is checked against them.
import agent.steps.spec.registry  # noqa: F401
from agent import __version__
from agent.config.settings import Settings
from agent.server.context import Context
from agent.server.db_pool import DbPool
from agent.server.event_counts import EventCounts
from agent.server.event_stream import EventStream
from agent.server.failed_auth_limiter import FailedAuthLimiter
from agent.server.header_limits import CONNECTION
from agent.server.idempotency import IdempotencyKeys
from agent.server.metrics import ServerMetrics
from agent.server.problems import problem_of
from agent.server.readiness import Readiness
from agent.server.request_guard import RequestGuard
from agent.server.route_registry import RouteRegistry, mount
from agent.server.routes import (
    approvals,
    artifacts,
    budgets,
    calls,
    description,
    events,
    health,
    hooks,
    links,
    steps,
    tasks,
    workflows,
)
from agent.server.startup import Startup
from agent.server.task_submitter import TaskSubmitter
from agent.server.tokens import Tokens
from agent.store.channels.cursors import Place
from agent.store.db.database import Database
from agent.tasks.operator.operator import Operator
from agent.tasks.worker.worker import Worker

TABLES: list[RouteRegistry] = [
    workflows.table,
    tasks.table,
    steps.table,
    calls.table,
    budgets.table,
    artifacts.table,
    approvals.table,
    events.table,
    hooks.table,
    links.table,
    health.table,
    description.table,
]


def context_of(
    settings: Settings,
    database: Database,
    worker: Worker,
    worker_loop: asyncio.AbstractEventLoop,
    tokens: Tokens,
    startup: Startup,
    count_from: Place | None = None,
) -> Context:
    """Put the parts of a server together, in the server's own loop."""
    bounds = settings.server
    reading = DbPool(database, "api-read", bounds.database_threads, bounds.max_requests)
    desk = TaskSubmitter(
        worker, worker_loop, reading, startup, settings.engine, bounds.max_requests
    )
    commands = DbPool(
        database,
        "api-command",
        bounds.database_threads,
        bounds.max_requests,
        desk.note_failed_write,
    )
    return Context(
        settings=settings,
        database=database,
        operator=Operator(database, database.clock),
        reading=reading,
        commands=commands,
        desk=desk,
        repeats=IdempotencyKeys(database, commands),
        feed=EventStream(asyncio.get_running_loop(), bounds.max_streams),
        event_counts=EventCounts(reading, count_from),
        meters=ServerMetrics(worker),
        readiness=Readiness(reading, database.clock.monotonic),
        failures=FailedAuthLimiter(database.clock.monotonic),
        tokens=tokens,
        startup=startup,
        health=worker.health,
    )


def close(context: Context) -> None:
    """Close what the parts hold; blocks until commands under way have ended."""
    context.reading.close()
    context.commands.close()


def build(context: Context) -> ASGIApp:
    """Return the application."""
    app = FastAPI(
        title="agent",
        version=__version__,
        description="Multi-step tasks that survive anything: start them, follow them, steer them.",
        # The description is a route like any other and needs a token; the pages that draw it
        # would load scripts from elsewhere.
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        exception_handlers={HTTPException: _refuse},
    )
    app.state.context = context
    mount(app, TABLES)
    door = RequestGuard(app, context.settings.server, context.tokens, context.failures)
    return _Counted(door, context.meters)


async def _refuse(request: Request, error: Any) -> Response:
    found = problem_of(error)
    if found.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        # The router names the methods of the first route at this address alone.
        routes = [route for route in request.app.routes if route.path_regex.match(request.url.path)]
        methods = sorted(method for route in routes for method in route.methods)
        found.headers = {"Allow": ", ".join(methods)}
    return found.response()


class _Counted:
    """Counts answers by status, and adds the headers that every answer has.

    An answer to a request whose body has not come whole is the last one of its connection: what is
    left of the body would have to be read only to be dropped.
    """

    def __init__(self, app: ASGIApp, meters: ServerMetrics) -> None:
        self._app = app
        self._meters = meters

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def count(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._meters.count_request(message["status"])
                message["headers"] = [
                    *message.get("headers", []),
                    (b"cache-control", b"no-store"),
                    (b"x-content-type-options", b"nosniff"),
                ]
                connection = scope.get(CONNECTION)
                if connection is not None and connection.awaits_body_of(scope):
                    message["headers"].append((b"connection", b"close"))
            await send(message)

        await self._app(scope, receive, count)
