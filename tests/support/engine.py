"""Two ways to drive the engine: a real worker beside the test, and commits made by the test.

`Engine` runs a `Worker` in a loop of its own thread, so that the test is another process to it.
`Hand` is a worker without a loop: the test decides what each attempt returned and when it commits,
so that the content of each commit is deterministic.
"""

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from agent.config.execution import EngineSettings
from agent.config.executors import ExecutorSettings
from agent.core.clock import SECOND, Clock
from agent.models.registry import ModelRegistry
from agent.steps.attempt.services import Limits
from agent.steps.executors.registry import Executors
from agent.steps.types.attempt_input import AttemptInput
from agent.steps.types.outcome import Failed, Outcome, Retry, StepError, Succeeded
from agent.store.artifacts.blobs import BlobStores
from agent.store.db.database import Database
from agent.tasks import checker
from agent.tasks.commit.batch import Batch, CommitResult, Completion
from agent.tasks.commit.committer import Committer
from agent.tasks.operator.operator import Operator
from agent.tasks.read_models import task_documents
from agent.tasks.read_models.event_tail import EventTail
from agent.tasks.rules.claiming import ClaimCapacity
from agent.tasks.rules.creation import Submission
from agent.tasks.worker.attempts import claim_of
from agent.tasks.worker.worker import Worker
from agent.triggers.schedules.fate_check import check_fates
from agent.workflows.graph import Graph, RetryPolicy, Step

T = TypeVar("T")

PATIENCE_SECONDS = 60
NOW = RetryPolicy(max_attempts=3, delay_seconds=0, jitter=False)
ERROR = StepError("no", "code", "it does not work")
FAILURE = Failed(ERROR)
RETRY = Retry(ERROR)


class HandClock(Clock):
    """A clock that the test moves; `monotonic` is not affected."""

    def __init__(self) -> None:
        super().__init__()
        self._skipped_us = 0

    def now(self) -> int:
        return super().now() + self._skipped_us

    def skip(self, seconds: float) -> None:
        """Let time pass."""
        self._skipped_us += int(seconds * SECOND)


def step(name: str, function: str = "noop", /, after: Iterable[str] = (), **options: Any) -> Step:
    """Return a step that calls one of the tests' functions, `given` these arguments."""
    given = options.pop("given", {})
    retry = options.pop("retry", NOW)
    config = {"call": f"tests.support.step_functions:{function}", "with": given}
    return Step(
        name=name, kind="python", config=config, depends_on=list(after), retry=retry, **options
    )


def other(name: str, kind: str, /, after: Iterable[str] = (), **options: Any) -> Step:
    """Return a step of another kind."""
    config = options.pop("config", {})
    return Step(name=name, kind=kind, config=config, depends_on=list(after), retry=NOW, **options)


def graph(*steps: Step, name: str = "tested", **options: Any) -> Graph:
    """Return a workflow of these steps."""
    return Graph(name=name, steps=list(steps), **options).checked()


def eventually(condition: Callable[[], T], what: object = "it") -> T:
    """Wait for something to become true, and return it."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    pause_seconds = 0.002
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > deadline:
            shown = what() if callable(what) else what
            raise AssertionError(f"not within {PATIENCE_SECONDS} s: {shown}")
        time.sleep(pause_seconds)
        # The condition may be costly, and takes processor time from what it waits for.
        pause_seconds = min(pause_seconds * 1.3, 0.03)


class Reader:
    """The queries that tests make."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._connection = database.connect("reader")

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def skip(self, seconds: float) -> None:
        """Let time pass for the engine."""
        assert isinstance(self.database.clock, HandClock)
        self.database.clock.skip(seconds)

    def rows(self, sql: str, **parameters: Any) -> list[tuple[Any, ...]]:
        """Run a query."""
        return self._connection.query(sql, **parameters)

    def document(self, task_id: str) -> dict[str, Any]:
        """Return a task as people see it."""
        return task_documents.task_document(self._connection, task_id)

    def steps(self, task_id: str) -> dict[str, dict[str, Any]]:
        """Return a task's steps by name."""
        return {found["name"]: found for found in self.document(task_id)["steps"]}

    def statuses(self, task_id: str) -> dict[str, str]:
        """Return the status of each step by name."""
        return {name: str(found["status"]) for name, found in self.steps(task_id).items()}

    def status(self, task_id: str) -> str:
        """Return a task's status."""
        return str(self.rows("SELECT status FROM tasks WHERE id = :id", id=task_id)[0][0])

    def events(self, task_id: str) -> list[tuple[str, str | None, int | None, Any]]:
        """Return (type, step, attempt, data) of a task's events in their order."""
        found = self.rows(
            "SELECT e.type, s.name, s.parallel_index, e.attempt, e.data FROM events AS e"
            " LEFT JOIN steps AS s ON s.id = e.step_id WHERE e.task_id = :id ORDER BY e.seq",
            id=task_id,
        )
        return [
            (
                kind,
                f"{name}[{index}]" if index is not None and index >= 0 else name,
                attempt,
                json.loads(data) if data is not None else None,
            )
            for kind, name, index, attempt, data in found
        ]

    def types(self, task_id: str, step: str | None = None) -> list[str]:
        """Return the types of a task's events, or of one of its steps, in their order."""
        events = self.events(task_id)
        return [kind for kind, name, _, _ in events if step is None or name == step]

    def everything(self) -> list[list[tuple[Any, ...]]]:
        """Return all rows of what commands may change."""
        keys = dict.fromkeys(("tasks", "steps", "events", "tool_calls", "signals"), "id")
        keys["idempotency_outcomes"] = "idempotency_key"
        return [self.rows(f"SELECT * FROM {table} ORDER BY {key}") for table, key in keys.items()]

    def wait(self, task_id: str, *statuses: str) -> dict[str, Any]:
        """Wait until a task has one of these statuses, and return it."""
        eventually(
            lambda: self.status(task_id) in statuses,
            lambda: f"{statuses}: {json.dumps(self.document(task_id), indent=1)}",
        )
        return self.document(task_id)

    def wait_step(self, task_id: str, name: str, *statuses: str) -> dict[str, Any]:
        """Wait until a step has one of these statuses, and return it."""
        return (
            eventually(
                lambda: next(
                    (
                        found
                        for found in self.document(task_id)["steps"]
                        if found["name"] == name and found["status"] in statuses
                    ),
                    None,
                ),
                lambda: f"{name} {statuses}: {json.dumps(self.document(task_id), indent=1)}",
            )
            or {}
        )


class Engine(Reader):
    """A worker that runs beside the test."""

    def __init__(
        self, database: Database, allow_private: tuple[str, ...] = (), **settings: Any
    ) -> None:
        super().__init__(database)
        self.limits = settings.pop("limits", None) or Limits(allow_private=allow_private)
        fast = {"poll_seconds": 0.1, "lease_seconds": 30.0, "shutdown_seconds": 5.0}
        self.models: ModelRegistry | None = settings.pop("models", None)
        self.settings = EngineSettings(**{**fast, **settings})
        self.clock = database.clock
        self.operator = Operator(database, database.clock)
        self.delivered_events: list[tuple[Any, ...]] = []
        """The events that the tail passed to its listeners."""
        self.failure: BaseException | None = None
        self._is_ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()
        assert self._is_ready.wait(PATIENCE_SECONDS)

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
        except BaseException as problem:
            self.failure = problem
            self._is_ready.set()

    async def _main(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.worker = Worker(self.database, self.settings, limits=self.limits, models=self.models)
        self.worker.services.executors = Executors(
            "local", ExecutorSettings(), "/nonexistent/jobs", BlobStores, ""
        )
        self.tail = EventTail(self.database)
        self.tail.subscribe(self.delivered_events.extend)
        self.worker.commit_listeners.append(self.tail.wake)
        self.tail.start()
        self._is_ready.set()
        try:
            await self.worker.run()
        finally:
            self.tail.stop()

    def submit(self, graph: Graph, **options: Any) -> str:
        """Submit a task as this process's own code would."""
        given = options.pop("given", {})
        submission = Submission(graph=graph, input=given, **options)
        work = self.worker.submit(submission)
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(PATIENCE_SECONDS)

    def run(self, graph: Graph, *statuses: str, **options: Any) -> dict[str, Any]:
        """Submit a task and wait for its end."""
        ends = statuses or ("succeeded", "failed", "canceled")
        return self.wait(self.submit(graph, **options), *ends)

    def stop(self) -> None:
        """Stop the worker and wait until it has ended."""
        if self._thread.is_alive():
            self.loop.call_soon_threadsafe(self.worker.stop)
            self._thread.join(PATIENCE_SECONDS)
            assert not self._thread.is_alive(), "the worker did not end"
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure


Start = Callable[..., Engine]
"""Starts an engine with settings of a test's own."""


class Hand(Reader):
    """A worker whose commits the test makes one by one, with outcomes of its choice."""

    def __init__(self, database: Database, slots: int = 50) -> None:
        super().__init__(database)
        self.slots = slots
        self.clock = database.clock
        self.operator = Operator(database, database.clock)
        self.committer = Committer(database, self.clock)
        self.committer.enroll()
        self.running: dict[tuple[str, str], AttemptInput] = {}

    def close(self) -> None:
        """Close the connections."""
        self.committer.session.disconnect()
        super().close()

    def commit(self, batch: Batch | None = None, **changes: Any) -> CommitResult:
        """Make one commit and keep what it claimed as running."""
        batch = batch or Batch()
        running = len(self.running) - len(batch.completions)
        options = {
            "slots": self.slots - running,
            "running": running,
            "lease_us": 30 * SECOND,
            "most_due": max(self.slots - running, 16),
            # A worker with nothing to write commits because it was notified, or its timer fired.
            "must_query_due": batch.is_empty,
        }
        capacity = ClaimCapacity(**{**options, **changes})
        delivered = self.committer.commit(batch, capacity)
        for settle, _ in delivered.result.settled:
            for key, claimed in list(self.running.items()):
                if claim_of(claimed) == settle.claim:
                    del self.running[key]
        for claimed in delivered.attempts:
            self.running[(claimed.task.id, name_of(claimed))] = claimed
        return delivered

    def submit(self, *graphs: Graph, slots: int | None = None, **options: Any) -> list[str]:
        """Submit tasks in one commit."""
        submissions = [Submission(graph=graph, **options) for graph in graphs]
        changes = {} if slots is None else {"slots": slots}
        created = self.commit(Batch(submissions=submissions), **changes).result.created
        return [created[submission.task_id] for submission in submissions]

    def start(self, graph: Graph, **options: Any) -> str:
        """Submit one task."""
        return self.submit(graph, **options)[0]

    def names(self, task_id: str | None = None) -> list[str]:
        """Return the names of the steps that run, in order."""
        return sorted(name for task, name in self.running if task_id in (None, task))

    def claimed(self, name: str, task_id: str | None = None) -> AttemptInput:
        """Return the one running attempt of a step."""
        (found,) = [
            claimed
            for (task, key), claimed in self.running.items()
            if key == name and task_id in (None, task)
        ]
        return found

    def settle(self, outcomes: Mapping[str, Outcome], task_id: str | None = None) -> CommitResult:
        """Settle outcomes of running attempts, by their steps' names, in one commit."""
        settles = [
            settle_of(self.claimed(name, task_id), outcome) for name, outcome in outcomes.items()
        ]
        return self.commit(Batch(completions=settles))

    def succeed(self, *names: str, task_id: str | None = None) -> CommitResult:
        """Let steps succeed in one commit."""
        return self.settle({name: Succeeded(name) for name in names}, task_id)

    def fail(self, *names: str, task_id: str | None = None) -> CommitResult:
        """Let steps fail in one commit."""
        return self.settle(dict.fromkeys(names, FAILURE), task_id)


def settle_of(claimed: AttemptInput, outcome: Outcome) -> Completion:
    """Return an attempt's outcome as a commit takes it."""
    return Completion(claim_of(claimed), claimed.graph, outcome)


def name_of(claimed: AttemptInput) -> str:
    """Return a step's name as people see it."""
    if claimed.parallel_index is None:
        return claimed.step.name
    return f"{claimed.step.name}[{claimed.parallel_index}]"


def most_at_once(
    events: Iterable[tuple[str, str | None, int | None, Any]], is_counted: Callable[[str], bool]
) -> int:
    """Return the largest number of a task's steps that were claimed at the same time."""
    running: set[str] = set()
    most = 0
    for kind, name, _, _ in events:
        if name is None or not is_counted(name):
            continue
        if kind == "step.claimed":
            running.add(name)
            most = max(most, len(running))
        elif kind.startswith("step.") and kind not in ("step.woken", "step.resumed"):
            running.discard(name)
    return most


def find_violations(database: Database) -> list[str]:
    """Run the checker on a database."""
    with database.connect("reader") as connection:
        return checker.check(connection, database.clock.now(), further=[check_fates])
