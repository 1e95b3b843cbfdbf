"""The jobs of a run: a store of objects in memory, a launcher, and jobs that die, stall and begin late.

The agent's half is the real one. A job is the real `agent job`, except that it acts on the world instead of
running a function. Faults of the agent's machine do not touch jobs; each has its own word in the plan.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from agent.config.executors import JobSettings, ProcessSettings
from agent.steps.attempt.services import Execution, Services
from agent.steps.executors import job_objects, job_runner, remote
from agent.steps.executors.job_objects import JobObjects
from agent.steps.executors.launcher import LaunchedJob
from agent.steps.executors.process import PythonExecution
from agent.steps.executors.remote import JobStore, RemoteExecution
from agent.steps.types.attempt_input import Signals
from agent.steps.types.errors import DefiniteFailure
from agent.steps.types.outcome import Failed, Outcome, Paused, Retry, Returned, StepError, Succeeded
from agent.store.artifacts import job_paths
from agent.store.db.database import Database, StoreError
from agent.store.db.dialect import Fault
from agent.tasks.worker.worker import Worker
from tests.simulation import step_processes
from tests.simulation.loop import Process, current_process
from tests.simulation.scenario import JsonObject

if TYPE_CHECKING:
    from tests.simulation.run import _Machine

SETTINGS = JobSettings(
    command=["simulated"],
    start_seconds=6.0,
    heartbeat_seconds=5.0,
    status_seconds=1.0,
    poll_seconds=0.5,
)
PROCESSES = ProcessSettings(processes=2)
STORE_URL = "simulated/jobs"
STORE_TIMEOUT_SECONDS = 2.0
ALIVE = frozenset({"ok", "slow", "late end", "twice"})
"""Jobs that give signs of life until they end."""


class MemoryObjects:
    """Objects by their address, in the place of `agent.store.artifacts.objects`."""

    def __init__(self, machine: "_Machine", outages: list[list[float]]) -> None:
        self._machine = machine
        self._outages = outages
        self._found: dict[str, bytes] = {}

    def create(self, address: str, data: bytes, _: Any = None) -> bool:
        """Create an object once."""
        with self._answering():
            is_new = address not in self._found
            self._found.setdefault(address, data)
            return is_new

    def write(self, address: str, data: bytes, _: Any = None) -> None:
        """Write an object."""
        with self._answering():
            self._found[address] = data

    def read(self, address: str, _: Any = None) -> bytes | None:
        """Return an object."""
        with self._answering():
            return self._found.get(address)

    def names_below(self, address: str, _: Any = None) -> list[str]:
        """Return the names below an address."""
        with self._answering():
            inner = [each[len(address) + 1 :] for each in self._found if each.startswith(address)]
            return sorted({each.partition("/")[0] for each in inner})

    def check(self, address: str, _: Any = None) -> None:
        """Raise `StoreError` where the store does not answer."""
        try:
            self.read(address)
        except OSError as problem:
            raise StoreError(Fault.UNREACHABLE, str(problem)) from None

    async def call_async(self, function: Callable[[], None], _seconds: float) -> None:
        """Call the store, in the place of its circuit breaker, which needs threads."""
        function()

    @contextlib.contextmanager
    def _answering(self) -> Iterator[None]:
        """Take some time; while the store is away a request is lost on its way, or its answer is."""
        loop = self._machine.loop
        loop.pause()
        is_away = not self._machine.is_calm and any(
            at <= loop.time() < at + seconds for at, seconds in self._outages
        )
        if is_away and loop.chance.random() < 0.5:
            raise OSError("the store is away")
        yield
        if is_away:
            raise OSError("the answer of the store was lost")


class JobWorld:
    """All jobs of one run, their launcher and their store."""

    knows_ends = False

    def __init__(self, machine: "_Machine") -> None:
        self._machine = machine
        drawn = machine.scenario.jobs
        self._plan = iter(drawn.get("plan", ()))
        self._objects = MemoryObjects(machine, drawn.get("outages", []))
        self._words: dict[str, str] = {}
        self._count = 0

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Let the agent's half and the jobs use this store, and jobs act on this world."""
        of_objects: Any = job_objects
        of_jobs: Any = job_runner
        of_remote: Any = remote
        before = of_objects.objects, of_jobs.Job, of_jobs.own_process, of_remote.objects
        world = self

        class SimulatedJob(job_runner.Job):
            """The real job with another attempt."""

            async def _attempt(self) -> Outcome:
                return await world.act(self._objects, self._spec, self._signals)

        of_jobs.Job, of_jobs.own_process = SimulatedJob, dict
        of_objects.objects = of_remote.objects = self._objects
        try:
            with step_processes.installed(self._machine):
                yield
        finally:
            of_objects.objects, of_jobs.Job, of_jobs.own_process, of_remote.objects = before

    def attach(self, worker: Worker) -> None:
        """Give a worker the executors `job` and `process`."""
        if self._machine.scenario.jobs:
            worker.services.executors = self

    def open(self, kind: str, executor: Any, services: Services) -> Execution:
        """Return what runs an attempt, as `Executors.open` does."""
        if executor["name"] == "process":
            return PythonExecution(PROCESSES, {}, services)
        stores: Any = SimpleNamespace(
            timeout_seconds=STORE_TIMEOUT_SECONDS,
            options=lambda _url: None,
            breaker=lambda _url: self._objects,
        )
        return RemoteExecution("job", kind, {}, self, SETTINGS, JobStore(STORE_URL, stores))

    def broken_promises(self, database: Database) -> list[str]:
        """Return the jobs whose objects would never be removed, and those that were given up too soon."""
        words = {base.rpartition("-")[2]: word for base, word in self._words.items()}
        with database.connect("reader") as connection:
            task_ids = [task_id for (task_id,) in connection.query("SELECT id FROM tasks")]
            removed = job_paths.of_tasks(connection, task_ids)
            defects = connection.query(
                "SELECT e.data FROM events AS e JOIN tasks AS t ON t.id = e.task_id"
                " WHERE e.type IN ('step.retried', 'step.failed') AND t.workflow_name LIKE 'job%'"
                ' AND e.data LIKE \'%"code": "exception"%\' ORDER BY e.id'
            )
            silent = connection.query(
                "SELECT replace(c.id, '-', '') FROM events AS e JOIN tool_calls AS c"
                " ON c.step_id = e.step_id AND c.attempt = e.attempt"
                " WHERE e.type IN ('step.retried', 'step.failed')"
                " AND e.data LIKE '%heartbeat_timeout%' AND c.action LIKE 'job#%' ORDER BY c.id"
            )
        known = {call.call_id.replace("-", "") for call in removed}
        problems = [f"nothing removes the objects of job {lease}" for lease in words.keys() - known]
        problems += [f"no code of a job raises, and a defect did: {data}" for (data,) in defects]
        # A store that was away excuses silence.
        if not self._machine.scenario.jobs.get("outages"):
            problems += [
                f"job {lease} was given up as silent, and its word is {words[lease]}"
                for (lease,) in silent
                if words.get(lease) in ALIVE
            ]
        return sorted(problems)

    # The launcher.

    async def ready(self) -> None:
        """Nothing to connect to."""

    async def launch(self, job: LaunchedJob) -> dict[str, Any]:
        """Start a job, as its word says."""
        chance = self._machine.loop.chance
        word = "ok" if self._machine.is_calm else next(self._plan, "ok")
        self._words[job.objects.base] = word
        self._machine.tell("launcher", f"{word}: {job.name}")
        self._machine.result.happened[f"job: {word}"] += 1
        await asyncio.sleep(chance.uniform(0.0, 0.3))
        if word == "refused":
            raise DefiniteFailure("no room", code="cannot_launch", kind="transport")
        if word == "never":
            return {}
        delay = chance.uniform(3.0, 12.0) if word == "late start" else chance.uniform(0.0, 0.5)
        self._start(job.objects, delay)
        if word == "twice":
            self._start(job.objects, delay + chance.uniform(0.0, 10.0))
        if word == "unheard launch":
            raise OSError("the launcher did not answer")
        return {"job": job.name}

    async def end_of(self, _: LaunchedJob) -> str | None:
        """Nothing is known of ends."""
        return None

    async def cancel(self, job: LaunchedJob) -> None:
        """Jobs stop by themselves, or not at all."""

    async def release(self, job: LaunchedJob) -> None:
        """Nothing is held."""

    # The jobs.

    def _start(self, objects: JobObjects, delay: float) -> None:
        self._count += 1
        process = Process(f"job {self._count}")
        self._machine.loop.start_in(process, self._run(objects, delay))

    async def _run(self, objects: JobObjects, delay: float) -> None:
        await asyncio.sleep(delay)
        name = current_process().name
        try:
            code = await job_runner.run(objects)
        except OSError as problem:
            self._machine.tell(name, f"ended: {problem}")
        except Exception as error:
            # A job that a defect ends would look like one that is silent.
            self._machine.result.problems.append(f"{name} ended by a defect: {error!r}")
        else:
            self._machine.tell(name, f"exit code {code}")

    async def act(self, objects: JobObjects, spec: JsonObject, signals: Signals) -> Outcome:
        """Do what a job's word says, in the place of its function."""
        word = self._words[objects.base]
        if word == "fail":
            return Retry(StepError("broken", "code", "it does not work"))
        if word == "final":
            return Failed(StepError("broken", "code", "it never will"))
        if word == "die at once":
            await self._die()
        self._effect(objects, spec)
        if word == "die":
            await asyncio.sleep(self._machine.loop.chance.uniform(0.0, 3.0))
            await self._die()
        if word == "stall":
            # A machine that sleeps: nothing of the job runs, and then it ends as if nothing had been.
            stalled = self._machine.loop.chance.uniform(4.0, 30.0)
            current_process().stopped_until = self._machine.loop.time() + stalled
        return await self._end(word, signals)

    async def _end(self, word: str, signals: Signals) -> Outcome:
        seconds = {"slow": 8.0, "late end": 14.0}.get(word, 1.0)
        ends_at = self._machine.loop.time() + self._machine.loop.chance.uniform(0.0, seconds)
        while self._machine.loop.time() < ends_at:
            await asyncio.sleep(0.25)
            if word == "late end":
                continue
            if signals.is_stopping:
                return Returned("stopped")
            if signals.is_pausing:
                return Paused(None)
        return Succeeded("done")

    async def _die(self) -> None:
        """End the job's process without a word."""
        process = current_process()
        self._machine.tell(process.name, "was killed")
        process.is_dead = True
        await asyncio.sleep(0)

    def _effect(self, objects: JobObjects, spec: JsonObject) -> None:
        """Let the effect happen at once: a person who is asked later must know whether it did."""
        with self._machine.observe().connect("reader") as connection:
            rows = connection.query(
                "SELECT remote_key FROM tool_calls WHERE replace(id, '-', '') = :lease",
                lease=objects.lease,
            )
        if not rows:
            text = f"a job acts whose intent is not recorded: {objects.base}"
            self._machine.result.problems.append(text)
            return
        task, ((key,),) = spec["task"], rows
        line = task["input"].get("line") or task["origin_id"]
        index = spec["parallel_index"]
        step = spec["step"]["name"] if index is None else f"{spec['step']['name']}[{index}]"
        is_once = spec["config"].get("effect") == "once"
        self._machine.world.happen(key, key, (line, step, 1), is_once=is_once)
