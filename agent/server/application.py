"""The ASGI application: the request guard, the routes, and the parts that they use."""

import asyncio
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

import uvicorn  # noqa: F401  (loaded with the rest)
from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

# Registers the kinds of steps: posted workflows are checked against them.
from agent import __version__
from agent.config.settings import Settings
from agent.core.thread_bridge import LoopBridge, LoopEndedError, ThreadBridge
from agent.server.access.failed_auth_limiter import FailedAuthLimiter
from agent.server.access.sessions import Sessions, cookie_name
from agent.server.access.tokens import Tokens
from agent.server.connections.header_limits import CONNECTION
from agent.server.context import Context
from agent.server.db_pool import DbPool
from agent.server.idempotency import IdempotencyKeys
from agent.server.monitoring.event_counts import EventCounts
from agent.server.monitoring.metrics import ServerMetrics
from agent.server.monitoring.readiness import Readiness
from agent.server.pages.framework import rendering
from agent.server.pages.framework.notices import Notices
from agent.server.pages.framework.page_registry import sections_of
from agent.server.pages.framework.renderings import Renderings
from agent.server.pages.framework.sent_forms import SentForms
from agent.server.pages.page_set import PAGES
from agent.server.problems import problem_of
from agent.server.requests.request_guard import PageAccess, RequestGuard
from agent.server.requests.route_registry import RouteRegistry, mount
from agent.server.routes import (
    approvals,
    artifacts,
    budgets,
    calls,
    conversations,
    description,
    events,
    health,
    hooks,
    links,
    load,
    memories,
    pruning,
    results,
    sign_in_links,
    snapshots,
    state,
    steps,
    tasks,
    triggers,
    work,
    work_queues,
    workflows,
)
from agent.server.routes.settings import routes as settings_routes
from agent.server.startup import Startup
from agent.server.streams.event_stream import EventStream
from agent.server.streams.live_feed import LiveFeed
from agent.server.task_submitter import TaskSubmitter
from agent.server.token_shares import TokenShares
from agent.server.watcher_checks import WatcherChecks
from agent.server.work_calls import WorkCalls
from agent.server.workflow_files import WorkflowFiles
from agent.store.channels.cursors import LogPosition
from agent.store.db.database import Database
from agent.tasks.operator.operator import Operator
from agent.tasks.state.graph_cache import GraphCache
from agent.tasks.worker.worker import Worker

ROUTES: list[RouteRegistry] = [
    # Routes are tried in this order: the calls of external workers, the most frequent ones, come first.
    work.routes,
    workflows.routes,
    tasks.routes,
    results.routes,
    steps.routes,
    calls.routes,
    budgets.routes,
    conversations.routes,
    artifacts.routes,
    approvals.routes,
    triggers.routes,
    work_queues.routes,
    snapshots.routes,
    memories.routes,
    state.routes,
    events.routes,
    hooks.routes,
    links.routes,
    settings_routes,
    pruning.routes,
    sign_in_links.routes,
    health.routes,
    load.routes,
    description.routes,
]


_MAX_CHECKS: Final = 4


def build_context(
    settings: Settings,
    database: Database,
    worker: Worker,
    worker_loop: asyncio.AbstractEventLoop,
    tokens: Tokens,
    sessions: Sessions,
    startup: Startup,
    count_from: LogPosition | None = None,
) -> Context:
    """Build the parts of a server, in the server's own loop."""
    limits = settings.server
    worker_bridge = LoopBridge(worker_loop)
    read_pool = DbPool(database, "api-read", limits.database_threads, limits.max_requests)
    task_submitter = TaskSubmitter(
        worker, worker_bridge, read_pool, startup, settings.engine, limits.max_requests
    )
    command_pool = DbPool(
        database,
        "api-command",
        limits.database_threads,
        limits.max_requests,
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
        watcher_checks=WatcherChecks(database, worker.services.limits),
        event_stream=EventStream(asyncio.get_running_loop(), limits.max_streams),
        event_counts=EventCounts(read_pool, count_from),
        metrics=ServerMetrics(worker),
        readiness=Readiness(read_pool, database.clock.monotonic),
        failed_auth_limiter=FailedAuthLimiter(database.clock.monotonic),
        tokens=tokens,
        sessions=sessions,
        live_feed=LiveFeed(asyncio.get_running_loop(), read_pool, limits.max_streams),
        graphs=GraphCache(),
        workflow_files=WorkflowFiles(),
        work=WorkCalls(
            database,
            worker,
            worker_bridge,
            read_pool,
            command_pool,
            task_submitter,
            limits.max_requests,
        ),
        check_thread=ThreadBridge("api-check"),
        checks=TokenShares(_MAX_CHECKS, "too many workflows are being checked"),
        startup=startup,
        health=worker.health,
        waiting_results=TokenShares(limits.max_streams, "too many callers wait for results"),
    )


def close(context: Context) -> None:
    """Close the pools; blocks until commands under way have ended."""
    context.check_thread.close()
    context.read_pool.close()
    context.command_pool.close()


def build_routes(context: Context) -> FastAPI:
    """Return the routes, each with its scope; without the checks that come before them."""
    app = FastAPI(
        title="agent",
        version=__version__,
        description="Multi-step tasks that survive anything: start them, follow them, steer them.",
        # `/openapi.json` is a route of ours and needs a token. FastAPI's own documentation pages
        # would load scripts from elsewhere.
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        exception_handlers={HTTPException: _refuse},
    )
    app.state.context = context
    app.state.renderings = Renderings()
    app.state.notices = Notices()
    app.state.sent_forms = SentForms()
    mount(app, [*ROUTES, *PAGES])
    return app


def build(context: Context, routes: FastAPI, others: Mapping[str, ASGIApp]) -> ASGIApp:
    """Return the application: the routes and the `others`, by their paths, behind the request guard."""
    paths = [*(getattr(route, "path", "/") for route in routes.routes), *others]
    sections = sections_of(PAGES)
    pages = PageAccess(
        context.sessions,
        sections,
        frozenset(path.split("/", 2)[1] for path in paths) - sections,
        cookie_name(context.settings.home),
    )
    routes.state.page_access = pages
    guard = RequestGuard(
        _Dispatch(_Routes(routes), others),
        context.settings.server,
        context.tokens,
        context.failed_auth_limiter,
        pages,
    )
    return _ResponseHeaders(guard, context.metrics)


class _Routes:
    """The routes without FastAPI's middleware: each turns its errors into responses.

    Addresses and methods that do not exist, for which the router raises itself, are refused here.
    """

    def __init__(self, routes: FastAPI) -> None:
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["app"] = self._routes
        try:
            await self._routes.router(scope, receive, send)
        except HTTPException as error:
            response = await _refuse(Request(scope, receive, send), error)
            await response(scope, receive, send)


class _Dispatch:
    """Sends requests for some paths to applications of their own.

    They rely on the guard: the token's grant is in the scope of every request.
    """

    def __init__(self, routes: ASGIApp, others: Mapping[str, ASGIApp]) -> None:
        self._routes = routes
        self._others = others

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._others.get(scope["path"], self._routes)
        await app(scope, receive, send)


async def _refuse(request: Request, error: Any) -> Response:
    problem = problem_of(error)
    if problem.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        # The router names only the methods of the first route at this address.
        routes = [route for route in request.app.routes if route.path_regex.match(request.url.path)]
        methods = sorted(method for route in routes for method in route.methods)
        problem.headers = {"Allow": ", ".join(methods)}
    # Without a server, as for MCP on a database of this machine, there are no pages.
    pages: PageAccess | None = getattr(request.app.state, "page_access", None)
    is_page = pages is not None and pages.has(request.url.path, request.headers)
    if is_page and "text/html" in request.headers.get("accept", ""):
        return rendering.refuse(request, problem)
    return problem.response()


class _ResponseHeaders:
    """Adds the headers that every response has, and counts responses by status.

    A response to a request whose body is not complete closes its connection: otherwise the rest of
    the body would have to be read only to be dropped.
    """

    def __init__(self, app: ASGIApp, metrics: ServerMetrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        has_begun = False

        async def send_with_headers(message: Message) -> None:
            nonlocal has_begun
            if message["type"] == "http.response.start":
                has_begun = True
                self._metrics.count_response(message["status"])
                headers = message.get("headers", [])
                message["headers"] = [*headers, (b"x-content-type-options", b"nosniff")]
                if not any(name == b"cache-control" for name, _ in headers):
                    message["headers"].append((b"cache-control", b"no-store"))
                connection = scope.get(CONNECTION)
                if connection is not None and connection.awaits_body_of(scope):
                    message["headers"].append((b"connection", b"close"))
            await send(message)

        try:
            await self._app(scope, receive, send_with_headers)
        except asyncio.CancelledError:
            # The server's grace is over; after the head of a response the connection ends.
            if has_begun:
                raise
            problem = problem_of(LoopEndedError())
            await problem.response()(scope, receive, send_with_headers)
