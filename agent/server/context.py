"""The parts of one running server, as the routes reach them."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from starlette.requests import Request

from agent.config.settings import Settings
from agent.core.thread_bridge import ThreadBridge
from agent.server.access.failed_auth_limiter import FailedAuthLimiter
from agent.server.access.grants import TokenGrant
from agent.server.access.sessions import Sessions
from agent.server.access.tokens import Tokens
from agent.server.db_pool import DbPool
from agent.server.idempotency import IdempotencyKeys
from agent.server.monitoring.event_counts import EventCounts
from agent.server.monitoring.metrics import ServerMetrics
from agent.server.monitoring.readiness import Readiness
from agent.server.problems import revoked
from agent.server.requests.route_registry import GRANT
from agent.server.startup import Startup
from agent.server.streams.event_stream import EventStream
from agent.server.streams.live_feed import LiveFeed
from agent.server.task_submitter import TaskSubmitter
from agent.server.token_shares import TokenShares
from agent.server.watcher_checks import WatcherChecks
from agent.server.work_calls import WorkCalls
from agent.server.workflow_files import WorkflowFiles
from agent.store.db.database import Database
from agent.tasks.operator.operator import Operator
from agent.tasks.state.graph_cache import GraphCache
from agent.tasks.worker.health import Health
from agent.telemetry import trace_context

Result = TypeVar("Result")

_CHECK_SECONDS: Final = 0.5
"""How often a request that waits checks its token."""

Reload = Callable[[], Awaitable[dict[str, Any]]]
"""Reads the configuration again and applies it; returns the keys that were applied and those that were not."""


@dataclass(slots=True)
class Context:
    """The parts of one server."""

    settings: Settings
    """Replaced when the configuration is reloaded."""
    database: Database
    operator: Operator
    read_pool: DbPool
    command_pool: DbPool
    """Separate from reads: a command may wait for a task that a commit has locked."""
    task_submitter: TaskSubmitter
    idempotency_keys: IdempotencyKeys
    watcher_checks: WatcherChecks
    event_stream: EventStream
    event_counts: EventCounts
    metrics: ServerMetrics
    readiness: Readiness
    failed_auth_limiter: FailedAuthLimiter
    tokens: Tokens
    sessions: Sessions
    live_feed: LiveFeed
    graphs: GraphCache
    """The graphs that pages show; not the worker's, which its own thread changes."""
    workflow_files: WorkflowFiles
    work: WorkCalls
    """The calls of external workers, also for surfaces other than the routes."""
    check_thread: ThreadBridge
    """Checks workflows that callers send: they take seconds of the processor, and read no database."""
    checks: TokenShares
    """Workflows that are being checked, or wait for it."""
    startup: Startup
    health: Health
    """The worker's present problems."""
    waiting_results: TokenShares
    """Requests that wait for the result of a task."""
    reload: Reload | None = None
    """None where the process that serves cannot reload its configuration."""


def context_of(request: Request) -> Context:
    """Return the parts of the server that received a request.

    FastAPI's `Depends` would take as long as some of the responses.
    """
    context = request.app.state.context
    assert isinstance(context, Context)
    return context


def caller(request: Request) -> TokenGrant:
    """Return the permissions of the request's token."""
    grant = request.scope[GRANT]
    assert isinstance(grant, TokenGrant)
    return grant


def still_allowed(request: Request) -> bool:
    """Whether the token or session of a request still holds; a caller within this process has neither."""
    context, grant = context_of(request), caller(request)
    if not grant.hash:
        return True
    if grant.channel == "page":
        return context.sessions.still_holds(grant)
    # MCP has a channel of its own.
    return context.tokens.still_holds(replace(grant, channel="api"))


async def while_allowed(is_allowed: Callable[[], bool], waiting: Awaitable[Result]) -> Result:
    """Wait for a result as long as a caller's token holds; then cancel, and refuse the request."""
    future = asyncio.ensure_future(waiting)
    try:
        while not (await asyncio.wait({future}, timeout=_CHECK_SECONDS))[0]:
            if not is_allowed():
                raise revoked()
        return future.result()
    finally:
        future.cancel()
        # Its own end is awaited: what it holds is free afterwards.
        await asyncio.wait({future})


def trace_of_caller(request: Request) -> dict[str, str]:
    """Return the caller's trace, which a task records with its start; empty without traces."""
    if not context_of(request).settings.telemetry.endpoint:
        return {}
    caller_span = trace_context.parse(request.headers.get(trace_context.KEY))
    return {} if caller_span is None else {trace_context.KEY: caller_span.traceparent}
