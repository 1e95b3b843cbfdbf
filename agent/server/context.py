"""The parts of one running server, as the routes reach them."""

from dataclasses import dataclass

from starlette.requests import Request

from agent.config.settings import Settings
from agent.server.db_pool import DbPool
from agent.server.event_counts import EventCounts
from agent.server.event_stream import EventStream
from agent.server.failed_auth_limiter import FailedAuthLimiter
from agent.server.idempotency import IdempotencyKeys
from agent.server.metrics import ServerMetrics
from agent.server.readiness import Readiness
from agent.server.route_registry import GRANT
from agent.server.startup import Startup
from agent.server.task_submitter import TaskSubmitter
from agent.server.tokens import TokenGrant, Tokens
from agent.server.watcher_checks import WatcherChecks
from agent.store.db.database import Database
from agent.tasks.operator.operator import Operator
from agent.tasks.worker.health import Health


@dataclass(frozen=True, slots=True)
class Context:
    """The parts of one server."""

    settings: Settings
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
    startup: Startup
    health: Health
    """The worker's present problems."""


def context_of(request: Request) -> Context:
    """Return the parts of the server that received a request.

    FastAPI's `Depends` would take as long as some of the responses.
    """
    context = request.app.state.context
    assert isinstance(context, Context)
    return context


def caller(request: Request) -> TokenGrant:
    """Return what the request's token allows."""
    grant = request.scope[GRANT]
    assert isinstance(grant, TokenGrant)
    return grant
