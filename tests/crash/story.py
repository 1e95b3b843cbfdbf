"""One task from its submission to its end, through a fault and the recovery."""

import asyncio
import contextlib
import json
import time
from typing import Any

from agent import recovery
from agent.approvals.answering import Verdict
from agent.config.execution import EngineSettings
from agent.core import waits
from agent.core.ids import new_id
from agent.core.plain_json import Json
from agent.core.waits import UnknownCall
from agent.store.db.database import Database, StoreError
from agent.store.engine import workers
from agent.tasks import checker
from agent.tasks.errors import RefusedError
from agent.tasks.operator.operator import Operator
from agent.tasks.rules.creation import Submission
from agent.tasks.worker.worker import Worker
from tests.crash import functions
from tests.crash.faults import Died, FaultyDatabase, HandClock, Way
from tests.crash.shapes import Shape
from tests.support.approvals import resolve

PATIENCE_SECONDS = 120.0
SETTINGS = EngineSettings(poll_seconds=0.02, lease_seconds=60.0, shutdown_seconds=5.0)
ENDED = ("succeeded", "failed", "canceled")


class Story:
    """A golden task on a database, with one fault at one of its commits."""

    def __init__(self, url: str, shape: Shape, at: int | None, way: Way) -> None:
        self.shape = shape
        self.clock = HandClock()
        self.url = url
        self.database = FaultyDatabase(url, self.clock, at, way)
        self.plain = Database(url, clock=self.clock)
        self.task_id = new_id()
        self.is_acknowledged = False
        self.lives = 0
        self._deadline = time.monotonic() + PATIENCE_SECONDS
        self._reader = self.plain.connect("reader")

    def run(self, *later: tuple[int, Way]) -> bool:
        """Run until the task has ended; return whether the fault happened.

        `later` are the faults of the processes after the first.
        """
        faults = list(later)
        try:
            self._learn_child()
            while True:
                self.lives += 1
                try:
                    if self.lives > 1:
                        recovery.recover(self.database, self.clock)
                    asyncio.run(self._live())
                    return self.database.has_happened
                except Died:
                    pass
                except StoreError:
                    # The recovery pass met the fault: the supervisor starts the daemon again.
                    assert self.database.has_happened
                assert self.lives < 9, "it dies again and again"
                self._declare_dead()
                at, way = faults.pop(0) if faults else (None, Way.REFUSED)
                self.database = FaultyDatabase(self.url, self.clock, at, way)
                self.database.has_happened = True
        finally:
            self.check()
            self._reader.close()

    def _learn_child(self) -> None:
        child = self.shape.child_graph()
        if child is not None:
            operator = Operator(self.plain, self.clock)
            operator.cancel(operator.submit(Submission(graph=child)))

    def _declare_dead(self) -> None:
        """Declare killed workers dead: on PostgreSQL other workers would, after a lease."""
        with self.plain.connect("writer") as connection:
            for worker_id, commit, *_ in workers.live_workers(connection):
                with connection.transaction():
                    workers.declare_dead(connection, worker_id, commit, self.clock.now())

    async def _live(self) -> None:
        # Ignore what attempts of a killed worker still raise.
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        worker = self._worker()
        has_committed = asyncio.Event()
        worker.commit_listeners.append(lambda *_: has_committed.set())
        running = asyncio.create_task(worker.run())
        submitting = None
        if not self.is_acknowledged:
            submitting = asyncio.create_task(worker.submit(self._submission()))
        try:
            while not self._has_ended():
                self._check_on(running)
                if submitting is not None and submitting.done() and not self.is_acknowledged:
                    assert submitting.result() == self.task_id
                    self.is_acknowledged = True
                self._answer_questions()
                has_committed.clear()
                # A commit that failed is not reported.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.02):
                        await has_committed.wait()
            self._check_on(running)
            worker.stop()
            await running
            self.database.check_alive()
        finally:
            for task in (running, *([submitting] if submitting else [])):
                task.cancel()
                await asyncio.wait([task])
            worker.database_thread.close()
            await asyncio.to_thread(worker.database_thread.join)
            worker.committer.session.disconnect()

    def _worker(self) -> Worker:
        return Worker(self.database, SETTINGS, self.clock)

    def _submission(self) -> Submission:
        graph = self.shape.graph("golden")
        return Submission(graph=graph, task_id=self.task_id, dedupe_key=self.task_id)

    def _check_on(self, running: "asyncio.Task[None]") -> None:
        self.database.check_alive()
        if running.done():
            running.result()
            raise AssertionError("the worker ended by itself")
        assert time.monotonic() < self._deadline, self.describe()

    def _rows(self, sql: str, **parameters: Any) -> list[tuple[Any, ...]]:
        return self._reader.query(sql, **parameters)

    def _has_ended(self) -> bool:
        found = self._rows("SELECT status FROM tasks WHERE id = :id", id=self.task_id)
        return bool(found and found[0][0] in ENDED)

    def _answer_questions(self) -> None:
        """Answer questions truthfully, and skip time when nothing else happens."""
        for task_id, name, parallel_index, waiting_on in self._rows(
            "SELECT task_id, name, parallel_index, waiting_on FROM steps WHERE status = 'waiting'"
        ):
            on = waits.parse(waiting_on)
            if isinstance(on, UnknownCall):
                title = name if parallel_index < 0 else f"{name}[{parallel_index}]"
                self._answer(task_id, title, on.call_id)
        ((busy,),) = self._rows(
            "SELECT count(*) FROM steps WHERE status = 'running'"
            " OR (status = 'pending' AND wake_at <= :now)",
            now=self.clock.now(),
        )
        ((wake,),) = self._rows("SELECT min(next_wake_time) FROM tasks WHERE status = 'running'")
        if not busy and wake is not None:
            left = (wake - self.clock.now()) / 1_000_000
            if left > 1:
                self.clock.skip(left)

    def _answer(self, task_id: str, title: str, call_id: str) -> None:
        ((request,),) = self._rows("SELECT request FROM tool_calls WHERE id = :id", id=call_id)
        # A step that is an effect as a whole has no request of its own that names it.
        name = json.loads(request).get("for", title)
        did_happen = functions.effects[(task_id, name)] > 0
        try:
            verdict: tuple[Verdict, Json] = ("done", 1) if did_happen else ("retry", None)
            resolve(self.plain, task_id, title, *verdict, clock=self.clock)
        except RefusedError:
            # Its late result came first.
            return

    def check(self) -> None:
        """Check the database and the effects against the promises."""
        shape = self.shape
        assert checker.check(self._reader, self.clock.now()) == [], self.describe()
        ((status,),) = self._rows("SELECT status FROM tasks WHERE id = :id", id=self.task_id)
        assert status == shape.status, self.describe()
        assert self._effects(self.task_id) == dict.fromkeys(shape.once, 1), self.describe()
        for name in shape.again:
            assert functions.effects[(self.task_id, f"{name} repeatable")] >= 1
        written = self._rows(
            "SELECT name, count(*) FROM state_history WHERE task_id = :id GROUP BY name",
            id=self.task_id,
        )
        assert dict(written) == shape.writes, self.describe()
        children = self._rows("SELECT id FROM tasks WHERE parent_task_id = :id", id=self.task_id)
        assert len(children) == (1 if shape.child else 0), self.describe()
        for (child,) in children:
            assert self._effects(child) == dict.fromkeys(shape.child_once, 1), self.describe()

    def _effects(self, task_id: str) -> dict[str, int]:
        return {
            name: count
            for (owner, name), count in functions.effects.items()
            if owner == task_id and not name.endswith(" repeatable")
        }

    def describe(self) -> str:
        """Describe the database and the world, for the message of a failure."""
        return "\n".join(
            [
                f"lives {self.lives}, commits {self.database.commits}",
                *(
                    str(row)
                    for row in self._rows(
                        "SELECT name, parallel_index, status, attempt, wake_at, waiting_on, error"
                        " FROM steps ORDER BY task_id, id"
                    )
                ),
                *(
                    str(row)
                    for row in self._rows(
                        "SELECT e.seq, e.type, s.name, e.attempt, e.data FROM events AS e"
                        " LEFT JOIN steps AS s ON s.id = e.step_id ORDER BY e.id"
                    )
                ),
                str(self._effects(self.task_id)),
            ]
        )
