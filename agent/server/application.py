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

ROUTES: list[RouteRegistry] = [
    workflows.routes,
    tasks.routes,
    steps.routes,
    calls.routes,
    budgets.routes,
    artifacts.routes,
    approvals.routes,
    events.routes,
    hooks.routes,
    links.routes,
    health.routes,
    description.routes,
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
    read_pool = DbPool(database, "api-read", bounds.database_threads, bounds.max_requests)
    task_submitter = TaskSubmitter(
        worker, worker_loop, read_pool, startup, settings.engine, bounds.max_requests
    )
    command_pool = DbPool(
        database,
        "api-command",
        bounds.database_threads,
        bounds.max_requests,
        task_submitter.note_failed_write,
    )
    return Context(
        settings=settings,
        database=database,
        operator=Operator(database, database.clock),
        read_pool=read_pool,
        command_pool=command_pool,
        task_submitter=task_submitter,
        idempotency_keys=IdempotencyKeys(database, command_pool),
        event_stream=EventStream(asyncio.get_running_loop(), bounds.max_streams),
        event_counts=EventCounts(read_pool, count_from),
        metrics=ServerMetrics(worker),
        readiness=Readiness(read_pool, database.clock.monotonic),
        failed_auth_limiter=FailedAuthLimiter(database.clock.monotonic),
        tokens=tokens,
        startup=startup,
        troubles=worker.troubles,
    )


def close(context: Context) -> None:
    """Close what the parts hold; blocks until commands under way have ended."""
    context.read_pool.close()
    context.command_pool.close()


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
    mount(app, ROUTES)
    door = RequestGuard(app, context.settings.server, context.tokens, context.failed_auth_limiter)
    return _Counted(door, context.metrics)


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

    def __init__(self, app: ASGIApp, metrics: ServerMetrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def count(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._metrics.count_request(message["status"])
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
