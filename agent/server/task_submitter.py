"""Submits the tasks that requests start to the worker of this process."""

import asyncio
from collections import OrderedDict
from typing import Any, Final

import structlog

from agent.config.execution import EngineSettings
from agent.core.thread_bridge import LoopBridge
from agent.server.db_pool import DbPool
from agent.server.problems import retry_later
from agent.server.startup import Startup
from agent.store.db.database import StoreError
from agent.store.db.dialect import Fault
from agent.store.engine import task_rows, workflow_versions
from agent.tasks.errors import NotFoundError, RefusedError
from agent.tasks.rules.creation import Submission
from agent.tasks.submission import StartableWorkflow, new_submission
from agent.tasks.worker.health import HealthProblem
from agent.tasks.worker.worker import Worker
from agent.workflows.graph import Graph

log = structlog.get_logger(__name__)

COMMIT_TIMEOUT_SECONDS: Final = 10.0
"""How long a submission waits for its commit before the server refuses it."""
_REFUSE_AFTER_SECONDS: Final = 1.0
"""After this long without a write the server refuses submissions instead of waiting."""
_DATABASE_FAULTS: Final = (
    Fault.FULL,
    Fault.LOST,
    Fault.READONLY,
    Fault.CORRUPT,
    Fault.REPLACED,
)
"""Faults of the whole database; the others concern one row, or one moment."""
_MAX_CACHED_GRAPHS: Final = 200


class TaskSubmitter:
    """Creates tasks through the worker, which puts many submissions into one commit."""

    def __init__(
        self,
        worker: Worker,
        worker_loop: LoopBridge,
        read_pool: DbPool,
        startup: Startup,
        engine: EngineSettings,
        max_waiting: int,
    ) -> None:
        self._worker = worker
        self._worker_loop = worker_loop
        self._read_pool = read_pool
        self._startup = startup
        self._engine = engine
        self._max_waiting = max_waiting
        self._waiting = 0
        self._graphs: OrderedDict[tuple[str, int], Graph] = OrderedDict()
        self.is_open = True

    async def workflow(self, name: str) -> StartableWorkflow:
        """Return the newest version of a workflow; raise `NotFoundError` if there is none."""
        latest = await self._read_pool.read(
            lambda connection: workflow_versions.latest(connection, name)
        )
        if latest is None:
            if not self._startup.has_workflows:
                raise self._startup.not_yet(name)
            raise NotFoundError(f"there is no workflow {name!r}")
        version, text, source, path = latest
        graph = self._graphs.get((name, version))
        if graph is None:
            graph = Graph.model_validate_json(text)
            self._graphs[name, version] = graph
            while len(self._graphs) > _MAX_CACHED_GRAPHS:
                self._graphs.popitem(last=False)
        return StartableWorkflow(graph, source, path)

    def database_problem(self) -> HealthProblem | None:
        """Return why the database cannot be written, once that has lasted or a write has failed."""
        health = self._worker.health
        problem, lasted = health.problem("database"), health.seconds("database")
        if problem is None or not (problem.is_certain or lasted >= _REFUSE_AFTER_SECONDS):
            return None
        return problem

    def note_failed_write(self, error: StoreError) -> None:
        """Count the database as unusable after a failed command, until the worker has committed.

        The worker tries to commit at once: it does so after every problem.
        """
        if error.fault not in _DATABASE_FAULTS:
            return
        if self._worker.health.report("database", error.message, is_certain=True):
            log.warning("command.not_written", fault=str(error.fault), error=error.message)
        self._worker_loop.post(self._worker.wake)

    async def submit(
        self,
        workflow: StartableWorkflow,
        values: dict[str, Any],
        *,
        trigger: dict[str, Any],
        priority: str | None = None,
        dedupe_key: str | None = None,
    ) -> str:
        """Create a task and return its id once that is durable."""
        submission = new_submission(
            workflow,
            steps_per_task=self._engine.steps_per_task,
            trigger=trigger,
            values=values,
            priority=priority,
            dedupe_key=dedupe_key,
        )
        try:
            return await self._commit(submission)
        except RefusedError:
            # On PostgreSQL another worker may have created the task between our read and our insert.
            existing = None
            if dedupe_key is not None:
                existing = await self._read_pool.read(
                    lambda connection: task_rows.task_by_dedupe_key(connection, dedupe_key)
                )
            if existing is None:
                raise
            return existing

    async def _commit(self, submission: Submission) -> str:
        if not self.is_open:
            raise retry_later(503, "stopping", "the agent is stopping; nothing was created")
        if self.database_problem() is not None:
            raise retry_later(
                503,
                "unavailable",
                "the database cannot be written at the moment; nothing was created",
                5,
            )
        if self._waiting >= self._max_waiting:
            raise retry_later(429, "too-many", "too many new tasks wait to be created")
        self._waiting += 1
        try:
            async with asyncio.timeout(COMMIT_TIMEOUT_SECONDS):
                return await self._worker_loop.run(self._worker.submit(submission))
        except TimeoutError:
            raise retry_later(
                503,
                "unavailable",
                "the task could not be created in time and was withdrawn, unless its commit was"
                " already under way; with an Idempotency-Key the request can be repeated safely",
                5,
            ) from None
        finally:
            self._waiting -= 1
