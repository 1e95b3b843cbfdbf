"""The desk: where the server hands new tasks to the worker, and what it knows of workflows."""

import asyncio
from collections import OrderedDict
from contextlib import suppress
from typing import Any, Final

import structlog

from agent.config.settings import EngineSettings
from agent.server.db_pool import DbPool
from agent.server.problems import Problem, retry_later
from agent.server.startup import Startup
from agent.store.db.database import StoreError
from agent.store.db.dialect import Fault
from agent.store.db.json_values import encode
from agent.store.engine import task_rows, workflow_versions
from agent.tasks.errors import NotFoundError, RefusedError
from agent.tasks.rules.creation import Submission
from agent.tasks.worker.health import Trouble
from agent.tasks.worker.worker import Worker
from agent.workflows.compile.inputs import check_inputs
from agent.workflows.graph import Graph

log = structlog.get_logger(__name__)

PATIENCE_SECONDS: Final = 10.0
"""How long a submission waits for its commit before it is refused."""
_REFUSE_AFTER_SECONDS: Final = 1.0
"""A database that could not be written for so long is not waited for."""
_UNUSABLE: Final = (Fault.FULL, Fault.LOST, Fault.READONLY, Fault.CORRUPT, Fault.REPLACED)
"""Faults of the whole database; the others concern one row, or one moment."""
_GRAPHS: Final = 200


class Workflow:
    """The newest version of a workflow, ready to be started."""

    __slots__ = ("graph", "path", "source")

    def __init__(self, graph: Graph, source: str | None, path: str | None) -> None:
        self.graph = graph
        self.source = source
        self.path = path


class TaskSubmitter:
    """Creates tasks through the worker's turn: many of them in one commit."""

    def __init__(
        self,
        worker: Worker,
        worker_loop: asyncio.AbstractEventLoop,
        reading: DbPool,
        startup: Startup,
        engine: EngineSettings,
        most_waiting: int,
    ) -> None:
        self._worker = worker
        self._worker_loop = worker_loop
        self._reading = reading
        self._startup = startup
        self._engine = engine
        self._most_waiting = most_waiting
        self._waiting = 0
        self._graphs: OrderedDict[tuple[str, int], Graph] = OrderedDict()
        self.is_open = True

    async def workflow(self, name: str) -> Workflow:
        """Return a workflow by its name."""
        found = await self._reading.read(
            lambda connection: workflow_versions.latest(connection, name)
        )
        if found is None:
            if not self._startup.has_workflows:
                raise self._startup.not_yet(name)
            raise NotFoundError(f"there is no workflow {name!r}")
        version, text, source, path = found
        graph = self._graphs.get((name, version))
        if graph is None:
            graph = Graph.model_validate_json(text)
            self._graphs[name, version] = graph
            while len(self._graphs) > _GRAPHS:
                self._graphs.popitem(last=False)
        return Workflow(graph, source, path)

    def database_trouble(self) -> Trouble | None:
        """Return why nothing can be written, once that has lasted or a write was refused for it."""
        troubles = self._worker.troubles
        trouble, lasted = troubles.of("database"), troubles.seconds("database")
        if trouble is None or not (trouble.is_certain or lasted >= _REFUSE_AFTER_SECONDS):
            return None
        return trouble

    def note_failed_write(self, error: StoreError) -> None:
        """Count the database as unusable after a failed command, until the worker has committed.

        The worker tries that at once: it makes a turn after every trouble.
        """
        if error.fault not in _UNUSABLE:
            return
        if self._worker.troubles.note("database", error.message, is_certain=True):
            log.warning("command.not_written", fault=str(error.fault), error=error.message)
        with suppress(RuntimeError):
            # The worker's loop may have ended before the server's.
            self._worker_loop.call_soon_threadsafe(self._worker.wake)

    async def submit(
        self,
        workflow: Workflow,
        given: dict[str, Any],
        *,
        trigger: dict[str, Any],
        priority: str | None = None,
        dedupe_key: str | None = None,
    ) -> str:
        """Create a task and return its id once that is durable."""
        graph = workflow.graph
        if len(graph.steps) > self._engine.steps_per_task:
            raise Problem(
                422,
                "invalid",
                f"{graph.name} has {len(graph.steps):,} steps, and steps_per_task in [engine]"
                f" allows {self._engine.steps_per_task:,}",
            )
        checked = check_inputs(graph, given)
        # Here, and not in the turn: what cannot be stored is the caller's own mistake.
        encode(checked, "input")
        encode(trigger, "trigger")
        submission = Submission(
            graph=graph,
            input=checked,
            priority=priority,
            trigger=trigger,
            dedupe_key=dedupe_key,
            source=workflow.source,
            path=workflow.path,
        )
        try:
            return await self._hand_over(submission)
        except RefusedError:
            # On PostgreSQL another worker may have created it between our look and our insert.
            existing = None
            if dedupe_key is not None:
                existing = await self._reading.read(
                    lambda connection: task_rows.task_by_dedupe_key(connection, dedupe_key)
                )
            if existing is None:
                raise
            return existing

    async def _hand_over(self, submission: Submission) -> str:
        if not self.is_open:
            raise retry_later(503, "stopping", "the agent is stopping; nothing was created")
        if self.database_trouble() is not None:
            raise retry_later(
                503,
                "unavailable",
                "the database cannot be written at the moment; nothing was created",
                5,
            )
        if self._waiting >= self._most_waiting:
            raise retry_later(429, "too-many", "too many new tasks wait to be created")
        self._waiting += 1
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                return await asyncio.wrap_future(
                    asyncio.run_coroutine_threadsafe(
                        self._worker.submit(submission), self._worker_loop
                    )
                )
        except TimeoutError:
            raise retry_later(
                503,
                "unavailable",
                "the task could not be created in time and was withdrawn, unless its commit was"
                " under way; with an Idempotency-Key the same request can be sent again",
                5,
            ) from None
        finally:
            self._waiting -= 1
