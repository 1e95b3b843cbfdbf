"""The routes on a database of this machine, without a server: for `agent mcp` over standard input.

A process that serves no HTTP runs no worker either. It commits new tasks itself, as the command line does.
"""

import asyncio
from collections.abc import Callable

from fastapi import FastAPI

from agent.config.file_exposure import trust_of
from agent.config.settings import Settings
from agent.core.thread_bridge import LoopBridge
from agent.server import application
from agent.server.access.sessions import Sessions
from agent.server.access.tokens import Tokens
from agent.server.requests.route_registry import mount
from agent.server.startup import Startup
from agent.server.task_submitter import TaskSubmitter
from agent.store.db.database import Database, StoreError
from agent.tasks.operator.operator import Operator
from agent.tasks.rules.creation import Submission
from agent.tasks.worker.health import HealthProblem
from agent.tasks.worker.worker import Worker


class DirectSubmitter(TaskSubmitter):
    """Commits each task in a transaction of its own: this process has no worker that does."""

    operator: Operator

    async def _commit(self, submission: Submission) -> str:
        return await asyncio.to_thread(self.operator.submit, submission)

    def database_problem(self) -> HealthProblem | None:
        """Return None: no worker has noticed any."""
        return None

    def note_failed_write(self, error: StoreError) -> None:
        """Do nothing: no worker has to try again."""


def open_routes(
    settings: Settings, database: Database, worker: Worker
) -> tuple[FastAPI, Callable[[], None]]:
    """Return the routes, and a function that closes their connections; `worker` need not run."""
    loop = asyncio.get_running_loop()
    startup = Startup(started_at=database.clock.now())
    trust = trust_of(settings)
    tokens, sessions = Tokens(settings.home, trust), Sessions(settings.home, trust)
    context = application.build_context(settings, database, worker, loop, tokens, sessions, startup)
    submitter = DirectSubmitter(
        worker,
        LoopBridge(loop),
        context.read_pool,
        startup,
        settings.engine,
        settings.server.max_requests,
    )
    submitter.operator = context.operator
    context.task_submitter = submitter
    return application.build_routes(context), lambda: application.close(context)


def described_routes() -> FastAPI:
    """Return the routes for their description alone."""
    app = FastAPI(title="agent", openapi_url=None, docs_url=None, redoc_url=None)
    mount(app, application.ROUTES)
    return app
