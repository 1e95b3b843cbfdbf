"""One run: the real engine, store and steps on a simulated machine, from a scenario to its end."""

import asyncio
import contextlib
import hashlib
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog

from agent import recovery
from agent.approvals import expiry
from agent.config.execution import EngineSettings
from agent.config.models import ModelSettings
from agent.core import ids
from agent.core.chat_origin import ChatOrigin
from agent.models import echo
from agent.models.registry import ModelRegistry, model_of
from agent.steps.attempt.services import Limits
from agent.steps.process import processes
from agent.steps.spec.registry import KINDS
from agent.store.db.database import StoreError
from agent.store.db.dialect import Fault
from agent.store.engine import workflow_versions
from agent.tasks import checker
from agent.tasks.checker import ExternalWitness
from agent.tasks.errors import RefusedError
from agent.tasks.rules.creation import Submission
from agent.tasks.worker import wake_listener
from agent.tasks.worker.worker import Worker
from agent.triggers.schedules.fate_check import check_fates
from agent.workflows.graph import Graph
from tests.simulation import agent_tools, functions
from tests.simulation.disk import STOPPED_SECONDS, SimulatedDatabase, Weather
from tests.simulation.external_workers import ExternalWorld
from tests.simulation.jobs import JobWorld
from tests.simulation.loop import Process, SimulatedLoop, StalledError
from tests.simulation.nature import SeededSource, SimulatedClock, SimulatedLink
from tests.simulation.people import People
from tests.simulation.scenario import HORIZON_SECONDS, JsonObject, Scenario
from tests.simulation.triggers import Triggers
from tests.simulation.world import World

# A first use loads code beside the loop: in a simulation that would depend on what ran before.
LOADED = (echo, *(kind.handler for kind in KINDS.values()))

SETTINGS = EngineSettings(
    slots=6, poll_seconds=1.0, lease_seconds=6.0, shutdown_seconds=5.0, solo_seconds=3.0
)
LIMITS = Limits(send_window_seconds=3.0, call_seconds=6.0, attempt_seconds=60.0, inline_bytes=2_000)
APPROVAL_LOOP_SECONDS = 5.0
_WITNESSED = frozenset({"act", "job", "python"})
"""The actions whose calls the world counts by key."""
PATIENCE_SECONDS = 1800.0
"""How long everything may take to end once nothing goes wrong any more."""


RETRIES = 2
"""How often a person retries what has not succeeded, in runs with retries."""


@dataclass
class Result:
    """The result of a run."""

    problems: list[str] = field(default_factory=list)
    trace: list[str] = field(default_factory=list)
    digest: str = ""
    """Of the whole trace: equal for equal runs."""
    callbacks: int = 0
    seconds: float = 0.0
    lives: int = 0
    happened: Counter[str] = field(default_factory=Counter)
    """What really went wrong, and how often."""


def run(scenario: Scenario, template: Path, *, is_traced: bool = False) -> Result:
    """Run a scenario on a copy of an empty database, in this thread, in no time."""
    with tempfile.TemporaryDirectory(dir=_memory()) as directory:
        path = Path(directory) / "agent.db"
        shutil.copyfile(template, path)
        return _Machine(scenario, path, is_traced=is_traced).run()


def _memory() -> str | None:
    """Return a directory in memory, where there is one."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


class _Machine:
    """The simulated machine with all its processes."""

    def __init__(self, scenario: Scenario, path: Path, *, is_traced: bool) -> None:
        self.scenario = scenario
        self.url = f"sqlite:///{path}"
        self.loop = SimulatedLoop(random.Random(f"order {scenario.seed}"))
        self.clock = SimulatedClock(self.loop)
        self.weather = Weather(self.loop)
        self.world = World()
        self.result = Result()
        self.graphs = {graph["name"]: Graph.model_validate(graph) for graph in scenario.graphs}
        self.workers: list[Worker | None] = [None] * scenario.workers
        self.is_calm = False
        """Whether nothing goes wrong any more."""
        self._is_ending = False
        self._is_traced = is_traced
        self._digest = hashlib.sha256()
        self._databases: list[SimulatedDatabase] = []
        self._visits = 0
        self._callbacks = 0
        self._carried: Counter[str] = Counter()
        anybodys = [fault for fault in scenario.faults if "life" not in fault]
        self._anybodys = {each["callback"]: each for each in anybodys if "callback" in each}
        """Faults that strike whichever worker comes to that callback, counted over all of them."""
        self._carriers: dict[tuple[str, int], str] = {
            (each["carrying"], each["number"]): each["way"]
            for each in anybodys
            if "carrying" in each
        }
        self.people = People(self)
        self.triggers = Triggers(self)
        self.external = ExternalWorld(self)
        self.jobs = JobWorld(self)

    # The machine's own account of what happens on it.

    def tell(self, who: str, what: str) -> None:
        """Write a line into the trace."""
        line = f"{self.loop.time():9.3f} {who:10} {what}"
        self._digest.update(line.encode())
        if self._is_traced:
            self.result.trace.append(line)

    def _log(self, _logger: object, level: str, event: MutableMapping[str, Any]) -> str:
        if event.get("event") == "worker.fenced":
            self._check_fence(str(event["worker"]))
        shown = {key: value for key, value in event.items() if key not in ("event", "exc_info")}
        self.tell(level, f"{event.get('event')} {shown}" if shown else str(event.get("event")))
        if level in ("exception", "critical") or event.get("exc_info"):
            self.result.problems.append(f"the engine says: {event.get('event')} {shown}")
        raise structlog.DropEvent

    def run(self) -> Result:
        """Run the scenario and check what it left."""
        before = functions.world, wake_listener.CHECK_SECONDS, processes.orphans
        functions.world = self.world
        wake_listener.CHECK_SECONDS = 0.5  # type: ignore[misc]
        # What runs on the real machine is none of the simulated one's.
        processes.orphans = list
        source = SeededSource(self.clock, random.Random(f"ids {self.scenario.seed}"))
        configured = structlog.get_config()
        structlog.configure(processors=[self._log], cache_logger_on_first_use=False)
        asyncio.set_event_loop(self.loop)
        try:
            with ids.drawn_from(source), self.triggers.sources(), self.jobs.installed():
                self._run()
        finally:
            functions.world, wake_listener.CHECK_SECONDS, processes.orphans = before  # type: ignore[misc]
            structlog.configure(**configured)
            asyncio.set_event_loop(None)
            for database in self._databases:
                database.close_all()
            self.loop.abandon()
        result = self.result
        result.digest = self._digest.hexdigest()
        result.callbacks, result.seconds = self.loop.callbacks, self.loop.time()
        for database in self._databases:
            who = "worker" if database.process.name.startswith("worker") else "command"
            for what, count in database.happened.items():
                result.happened[f"{who}: {what}"] += count
        result.happened["effect adrift"] = self.world.sent
        result.happened["failure taken from the record"] = self.world.refused_again
        return result

    def _run(self) -> None:
        self.loop.set_exception_handler(self._complain)
        try:
            self.loop.run_until_complete(self._main())
        except (StalledError, TimeoutError) as error:
            self.result.problems.append(str(error) or "a question is never answered")
        self._check("at the end")
        self._read_events()

    def _complain(self, _loop: object, context: JsonObject) -> None:
        error = context.get("exception")
        text = f"{context.get('message')}: {error!r}"
        if "never retrieved" in text:
            # Reported when the collector finds the future: the seed does not decide when.
            return
        self.tell("loop", text)
        if error is not None:
            self.result.problems.append(text)

    # What happens.

    async def _main(self) -> None:
        with self.open(Process("setup")).connect("writer") as connection, connection.transaction():
            for graph in self.graphs.values():
                workflow_versions.register(
                    connection, graph.name, graph.hash, graph.text, None, None, self.clock.now()
                )
        self.triggers.define(self.open(Process("setup")))
        for fault in self.scenario.faults:
            if "at" in fault:
                self.loop.call_at(fault["at"], self._strike, fault)
        slots = [
            self.loop.create_task(self._keep_alive(slot)) for slot in range(self.scenario.workers)
        ]
        acts = [
            self.loop.create_task(self._submit(number, submission))
            for number, submission in enumerate(self.scenario.submissions)
        ]
        watching = self.loop.create_task(self._look_now_and_then())
        acts += [
            self.loop.create_task(self.people.operate(each)) for each in self.scenario.operations
        ]
        acts += [
            self.loop.create_task(self.triggers.operate(each))
            for each in self.scenario.trigger_operations
        ]
        self.external.start()
        if self.scenario.is_attended:
            acts.append(self.loop.create_task(self.people.attend()))
        await asyncio.sleep(HORIZON_SECONDS)
        self.is_calm = True
        self.weather.clear()
        self.clock.set_right()
        self.world.let_arrive()
        for database in self._databases:
            database.faults.clear()
        self.tell("machine", "nothing goes wrong any more")
        # The last ones that were stopped come back.
        await asyncio.sleep(STOPPED_SECONDS)
        async with asyncio.timeout(PATIENCE_SECONDS):
            await asyncio.gather(*acts)
            await self.triggers.settle()
            await self._see_to_the_end()
            for _ in range(RETRIES if self.scenario.is_retried else 0):
                await self.people.retry_all()
                await self._see_to_the_end()
            await self.people.fork_after_answers()
            await self._see_to_the_end()
        watching.cancel()
        self.external.stop()
        self.tell("machine", "SIGTERM to all")
        asked = self.loop.time()
        self._is_ending = True
        for worker in self.workers:
            if worker is not None:
                worker.stop()
        await asyncio.gather(*slots)
        if self.loop.time() - asked > SETTINGS.shutdown_seconds + 10:
            self.result.problems.append(f"it took {self.loop.time() - asked:.0f} s to stop")

    async def _see_to_the_end(self) -> None:
        while True:
            open_tasks = await self.people.settle()
            open_tasks += self.triggers.waiting(self.open(Process("settler")))
            if not open_tasks:
                break
            await asyncio.sleep(1.0)
            if self.loop.time() > PATIENCE_SECONDS:
                self.result.problems += [f"it does not end: {each}" for each in open_tasks]
                break

    async def _look_now_and_then(self) -> None:
        while True:
            often = (5.0, 60.0) if self.is_calm else (0.5, 8.0)
            await asyncio.sleep(self.loop.chance.uniform(*often))
            self._check("in the middle")

    def open(self, process: Process) -> SimulatedDatabase:
        """Return a process's view of the database."""
        database = SimulatedDatabase(self.url, self.clock, self.loop, process, self.weather)
        self._databases.append(database)
        return database

    def observe(self) -> SimulatedDatabase:
        """Return a view of the database that no fault of the machine touches."""
        database = self.open(Process("observer"))
        database.weather = Weather(self.loop)
        return database

    async def visit(self, name: str, work: Callable[[SimulatedDatabase], Any]) -> Any:
        """Do something in a short-lived process of its own, such as a command's."""
        process = Process(name)
        database = self.open(process)
        if not self.is_calm and name in ("operator", "client"):
            database.faults = self._commit_faults("operator", self._visits)
            self._visits += 1
        done: asyncio.Future[Any] = self.loop.start_in(
            process, _blocking(self.loop, work, database)
        )
        try:
            while not done.done():
                await asyncio.wait([done], timeout=0.5)
                if process.is_dead:
                    raise StoreError(Fault.LOST, "the command was killed")
            return done.result()
        finally:
            database.close_all()

    async def _keep_alive(self, slot: int) -> None:
        """Start a worker again whenever it has ended, until there is nothing left to do."""
        while True:
            process = Process(f"worker {self.result.lives}")
            database = self.open(process)
            if not self.is_calm:
                self._arm(process, database, self.result.lives)
            self.result.lives += 1
            self.tell(process.name, "starts")
            life = self.loop.start_in(process, self._live(slot, database))
            while not life.done() and not process.is_dead:
                await asyncio.wait([life], timeout=0.25)
            database.close_all()
            self.workers[slot] = None
            if process.is_dead:
                self.tell(process.name, "was killed")
                self._check("after a kill")
            elif life.exception() is None:
                self.tell(process.name, "has ended")
            else:
                self.tell(process.name, f"ended: {life.exception()!r}")
                if not isinstance(life.exception(), StoreError):
                    self.result.problems.append(f"a worker ended: {life.exception()!r}")
            process.is_dead = True
            self.world.let_arrive(process)
            if self._is_ending:
                return
            await asyncio.sleep(self.loop.chance.uniform(0.05, 3.0))

    async def _live(self, slot: int, database: SimulatedDatabase) -> None:
        is_daemon = self.scenario.workers == 1
        if is_daemon:
            await self.loop.run_blocking(lambda: recovery.recover(database, self.clock))
        models = ModelRegistry({"echo": model_of("echo", ModelSettings(provider="echo"))})
        link = SimulatedLink(self.loop)
        worker = Worker(
            database, SETTINGS, self.clock, LIMITS, is_daemon, models=models, database_thread=link
        )
        agent_tools.equip(worker, database, self.clock, self.loop)
        worker.commit_listeners.append(self._hear)
        self.workers[slot] = worker
        self.external.attach(worker)
        self.jobs.attach(worker)
        database.process.is_busy = lambda: worker.running > 0 or not worker.outbox.is_empty
        if self._is_ending:
            worker.stop()
        asking = asyncio.create_task(self._check_approvals(database))
        firing = asyncio.create_task(self.triggers.drive(worker, database))
        try:
            await worker.run()
        finally:
            asking.cancel()
            firing.cancel()

    async def _check_approvals(self, database: SimulatedDatabase) -> None:
        """Run the approval check as the daemon's scheduler does."""
        check = expiry.ApprovalCheck(database, self.clock)
        while True:
            # The scheduler logs a failure and runs the job at its next time.
            with contextlib.suppress(Exception):
                await asyncio.to_thread(check.run)
            await asyncio.sleep(APPROVAL_LOOP_SECONDS)

    def _hear(self, events: list[tuple[Any, ...]]) -> None:
        for event in events:
            self.tell("event", " ".join(str(part) for part in event if part is not None))

    async def _submit(self, number: int, submission: JsonObject) -> None:
        """Deliver a submission until it is acknowledged, if it has a key."""
        await asyncio.sleep(submission["at"])
        key = submission["key"]
        while True:
            graph = self.graphs[submission["graph"]]
            given = {"line": key or f"task {number}"} if "line" in graph.inputs else {}
            chat = submission.get("chat")
            origin = None if chat is None else ChatOrigin("terminal", chat).dump()
            asked = Submission(graph=graph, input=given, dedupe_key=key, chat_origin=origin)
            try:
                task_id = await self._deliver(asked, submission["by"])
            except (StoreError, RefusedError) as error:
                self.tell("client", f"submission {number} failed: {error}")
                if key is None:
                    return
                await asyncio.sleep(self.loop.chance.uniform(0.1, 2.0))
                continue
            self.tell("client", f"submission {number} is task {task_id}")
            self.result.happened["delivered again"] += task_id in self.world.acknowledged
            self.world.acknowledged.add(task_id)
            self.people.learn(number, key, task_id)
            return

    async def _deliver(self, asked: Submission, by: str) -> str:
        worker = next((worker for worker in self.workers if worker is not None), None)
        if by == "operator" or worker is None:
            return str(
                await self.visit("client", lambda base: self.people.operator(base).submit(asked))
            )
        process = worker.database.process  # type: ignore[attr-defined]
        answer = self.loop.start_in(process, worker.submit(asked))
        while not answer.done():
            await asyncio.wait([answer], timeout=0.5)
            if process.is_dead or worker not in self.workers:
                raise StoreError(Fault.LOST, "the worker is gone")
        return str(answer.result())

    # What goes wrong.

    def _arm(self, process: Process, database: SimulatedDatabase, life: int) -> None:
        database.faults = self._commit_faults("commit", life)
        database.strike = self._on_commit
        mine = [fault for fault in self.scenario.faults if fault.get("life") == life]
        at = {fault["callback"]: fault for fault in mine if "callback" in fault}

        def on_callback(number: int) -> None:
            self._callbacks += 1
            fault = at.pop(number, None) or self._anybodys.pop(self._callbacks, None)
            if fault is None or self.is_calm:
                return
            self.result.happened[fault["kind"]] += 1
            if fault["kind"] == "kill":
                database.die()
            elif fault["kind"] == "end":
                self._end(life)
            else:
                process.stopped_until = self.loop.time() + fault["seconds"]
                self.tell(process.name, f"is stopped for {fault['seconds']} s")

        process.on_callback = on_callback

    def _on_commit(self, word: str) -> str | None:
        """Count what workers' commits carry, and say how this one is to go wrong."""
        self._carried[word] += 1
        if self.is_calm:
            return None
        return self._carriers.pop((word, self._carried[word]), None)

    def _end(self, life: int) -> None:
        """Send SIGTERM to a worker, which is started again later."""
        for worker in self.workers:
            if worker is not None and worker.database.process.name == f"worker {life}":  # type: ignore[attr-defined]
                self.tell(f"worker {life}", "is asked to end")
                worker.stop()

    def _commit_faults(self, kind: str, life: int) -> dict[int, str]:
        return {
            fault["commit"]: fault["way"]
            for fault in self.scenario.faults
            if fault["kind"] == kind and fault.get("life") == life
        }

    def _strike(self, fault: JsonObject) -> None:
        self.tell("machine", f"{fault['kind']} ({fault['seconds']} s)")
        if fault["kind"] == "jump":
            is_forward = fault["seconds"] > 0
            self.result.happened["jump forward" if is_forward else "jump back"] += 1
            self.clock.jump(fault["seconds"])
            if is_forward:
                self.world.let_arrive()
        else:
            self.weather.set(fault["kind"], fault["seconds"])

    # What it left.

    def _check(self, when: str) -> None:
        database = self.observe()
        is_end = when == "at the end"
        outside = None
        if is_end:
            outside = ExternalWitness(self.world.by_key, self.world.acknowledged, _WITNESSED)
        with database.connect("reader") as connection:
            found = checker.check(connection, self.clock.latest, outside, [check_fates])
        if is_end:
            found += self.world.broken_promises()
            found += self.people.broken_promises()
            found += self.triggers.broken_promises(database)
            found += agent_tools.broken_promises(database)
            found += self.jobs.broken_promises(database)
            memories, started = agent_tools.counts(database)
            self.result.happened["agent: remembered"] += memories
            self.result.happened["agent: started"] += started
            found += self._check_total(database)
        self.result.problems += [f"{when}: {sentence}" for sentence in found]

    def _check_total(self, database: SimulatedDatabase) -> list[str]:
        """Everything that writes `total` adds one: its value is the number of its versions."""
        with database.connect("reader") as connection:
            found = connection.query("SELECT value, version FROM state_values WHERE name = 'total'")
        self.result.happened["state: written"] += sum(version for _, version in found)
        return [
            f"the total is {value}, and was written {version} times"
            for value, version in found
            if value != str(version)
        ]

    def _check_fence(self, worker_id: str) -> None:
        """No worker is fenced that was not declared dead."""
        self.result.happened["zombie came back"] += 1
        database = self.observe()
        with database.connect("reader") as connection:
            found = connection.query("SELECT dead, turn FROM workers WHERE id = :id", id=worker_id)
        if found and not found[0][0]:
            self.result.problems.append(f"worker {worker_id} lost its claims, and is not dead")

    def _read_events(self) -> None:
        """Let the log in the database count for the digest, and be read at the trace's end."""
        with self.observe().connect("reader") as connection:
            for conversation, number, role, _ in connection.query(
                "SELECT conversation, number, role, content FROM conversation_turns"
                " ORDER BY conversation, number"
            ):
                self.tell("said", f"{conversation} {number} {role}")
                self.result.happened[f"said: {role}"] += 1
            for row in connection.query(
                "SELECT e.task_id, e.seq, e.type, s.name, s.parallel_index, e.attempt, e.at, e.data"
                " FROM events AS e LEFT JOIN steps AS s ON s.id = e.step_id ORDER BY e.id"
            ):
                self.tell("log", " ".join(str(part) for part in row if part is not None))


async def _blocking(
    loop: SimulatedLoop, work: Callable[[SimulatedDatabase], Any], database: SimulatedDatabase
) -> Any:
    return await loop.run_blocking(lambda: work(database))
