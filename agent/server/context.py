"""What the routes work with: the parts of one running server."""

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
from agent.server.tokens import Grant, Tokens
from agent.store.db.database import Database
from agent.tasks.operator.operator import Operator
from agent.tasks.worker.health import Health


@dataclass(frozen=True, slots=True)
class Context:
    """The parts of one server."""

    settings: Settings
    database: Database
    operator: Operator
    reading: DbPool
    commands: DbPool
    """Apart from reads: a command may wait for a task that a turn holds."""
    desk: TaskSubmitter
    repeats: IdempotencyKeys
    feed: EventStream
    event_counts: EventCounts
    meters: ServerMetrics
    readiness: Readiness
    failures: FailedAuthLimiter
    tokens: Tokens
    startup: Startup
    health: Health
    """What keeps the worker from its work at the moment."""


def here(request: Request) -> Context:
    """Return the parts of the server that a request came to.

    Not by `Depends`, which would take as long as some of the answers.
    """
    found = request.app.state.context
    assert isinstance(found, Context)
    return found


def caller(request: Request) -> Grant:
    """Return what the request's token allows."""
    found = request.scope[GRANT]
    assert isinstance(found, Grant)
    return found
