"""The processes of the pool on the simulated machine: they call functions, crash and hang.

The pool and the agent's half of an attempt are the real ones. Such a process dies with its agent.
"""

import asyncio
import contextlib
import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from agent.steps.attempt.context import StepContext
from agent.steps.executors import worker_process
from agent.steps.executors.worker_process import ProcessDiedError
from tests.simulation import functions

if TYPE_CHECKING:
    from tests.simulation.run import _Machine

HANG_SECONDS = 60.0


class SimulatedProcess:
    """One process, in the place of `WorkerProcess`."""

    def __init__(self, machine: "_Machine", number: int, plan: Iterator[str]) -> None:
        self.id = number
        self.is_usable = True
        self.has_ended = False
        self._machine = machine
        self._plan = plan

    async def call(self, _call: str, arguments: Any, _limits: Any, context: StepContext) -> str:
        """Call a function, as the next word says."""
        word = "ok" if self._machine.is_calm else next(self._plan, "ok")
        self._machine.tell(f"process {self.id}", f"{word}: {context.task_id} {context.step}")
        self._machine.result.happened[f"process: {word}"] += 1
        if self.has_ended:
            self._machine.result.problems.append(f"process {self.id} was used after its end")
        self.is_usable = False
        if word == "crash first":
            raise self._death()
        self._act(context)
        chance = self._machine.loop.chance
        await asyncio.sleep(HANG_SECONDS if word == "hang" else chance.uniform(0.0, 3.0))
        if word == "crash":
            raise self._death()
        self.is_usable = word != "spoiled"
        return "done"

    def _act(self, context: StepContext) -> None:
        call = context._call
        if call is None:
            return
        name = (functions._line(context), functions._step_name(context), 1)
        key, remote_key = call.idempotency_key, call.remote_key
        self._machine.world.happen(key, remote_key, name, is_once=True)

    def _death(self) -> ProcessDiedError:
        self.has_ended = True
        return ProcessDiedError("the process of the step ended by SIGSEGV")

    async def end(self, grace_seconds: float) -> None:
        """Stop the function."""
        await asyncio.sleep(self._machine.loop.chance.uniform(0.0, grace_seconds))
        self.kill()

    def kill(self) -> None:
        """End it at once."""
        self.is_usable, self.has_ended = False, True


@contextlib.contextmanager
def installed(machine: "_Machine") -> Iterator[None]:
    """Let pools start simulated processes."""
    plan = iter(machine.scenario.jobs.get("processes", ()))
    numbers = itertools.count(1)

    async def start(_threads: Any) -> SimulatedProcess:
        await asyncio.sleep(machine.loop.chance.uniform(0.0, 1.0))
        return SimulatedProcess(machine, next(numbers), plan)

    replaced: Any = worker_process
    before, replaced.start = replaced.start, start
    try:
        yield
    finally:
        replaced.start = before
