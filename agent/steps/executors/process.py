"""`process`: the step's code runs in a process of its own, with limits.

A step that exits, crashes, eats memory or computes without end ends its own process only.
"""

import asyncio
import resource
from typing import Any, Final

from agent.config.executors import ProcessSettings
from agent.steps.attempt.context import StepContext
from agent.steps.attempt.services import Services
from agent.steps.executors.process_pool import ProcessPool
from agent.steps.executors.worker_process import ProcessDiedError, WorkerProcess
from agent.steps.kinds import shell
from agent.steps.spec.configs import PythonConfig, ShellConfig
from agent.steps.types.call_types import Call
from agent.steps.types.errors import DefiniteFailure, UnknownOutcomeError
from agent.steps.types.outcome import Json, Outcome, StepError, Succeeded

_POOL: Final = "process pool"
_MB: Final = 2**20


def limits_of(settings: ProcessSettings, options: dict[str, Any]) -> dict[str, int]:
    """Return the limits of a step's process: its own, else those of the configuration."""
    limits = {
        "memory": options.get("memory") or settings.memory_mb * _MB,
        "cpu_seconds": options.get("cpu_seconds") or settings.cpu_seconds,
        "files": options.get("files") or settings.files,
    }
    return {name: limit for name, limit in limits.items() if limit}


def pool_of(settings: ProcessSettings, services: Services) -> ProcessPool:
    """Return the worker's pool; it is closed with the worker."""
    pool = services.resources.get(_POOL)
    if pool is None:
        pool = services.resources[_POOL] = ProcessPool(settings.processes, services.threads)
    assert isinstance(pool, ProcessPool)
    pool.size = settings.processes
    return pool


class PythonExecution:
    """One attempt of a `python` step in a process."""

    def __init__(self, settings: ProcessSettings, options: dict[str, Any], services: Services):
        self._limits = limits_of(settings, options)
        self._pool = pool_of(settings, services)
        self._process: WorkerProcess | None = None

    async def ready(self, _: StepContext) -> None:
        """Wait for a process."""
        self._process = await self._pool.take()

    async def run(self, config: PythonConfig, context: StepContext) -> Outcome:
        """Call the function in the process; as one journaled call with `effect: once`."""
        assert self._process is not None
        context.note_executor({"executor": "process", "process": self._process.id})
        if config.effect != "once":
            try:
                return Succeeded(await self._call(config, context))
            except ProcessDiedError as error:
                raise DefiniteFailure(error.message, code=error.code, kind="crash") from None
        body = {"call": config.call, "with": config.with_}
        request = context.request("python", body, on_unknown="ask")

        async def perform(_: Call) -> Json:
            try:
                return await self._call(config, context)
            except ProcessDiedError as error:
                text = f"{error.message}; whether it took effect is unknown"
                raise UnknownOutcomeError(StepError(error.code, "unknown", text)) from None

        answer = await context.perform(request, perform)
        return Succeeded(answer.response, idempotency_key=answer.idempotency_key)

    async def _call(self, config: PythonConfig, context: StepContext) -> Json:
        process = self._process
        assert process is not None
        try:
            return await process.call(config.call, config.with_, self._limits, context)
        except asyncio.CancelledError:
            context.calls.is_revoked = True
            grace_seconds = context.services.limits.kill_grace_seconds
            if not context.is_interrupted():
                grace_seconds = min(grace_seconds, shell.HURRIED_SECONDS)
            await process.end(grace_seconds)
            raise

    def close(self) -> None:
        """Give the process back."""
        if self._process is not None:
            process, self._process = self._process, None
            self._pool.put(process)


class ShellExecution:
    """One attempt of a `shell` step: a command has a process of its own anyway; this one has limits."""

    def __init__(self, settings: ProcessSettings, options: dict[str, Any]) -> None:
        self._limits = limits_of(settings, options)

    async def ready(self, _: StepContext) -> None:
        """Nothing to wait for."""

    async def run(self, config: ShellConfig, context: StepContext) -> Outcome:
        """Run the command under the limits."""
        if self._limits and not hasattr(resource, "prlimit"):
            raise DefiniteFailure(
                "limits of shell steps need Linux: remove memory, cpu_seconds and files",
                code="no_limits",
                kind="input",
                may_retry=False,
            )
        context.note_executor({"executor": "process"})
        context.command_limits = self._limits
        return await shell.run(config, context)

    def close(self) -> None:
        """Nothing to give back."""
