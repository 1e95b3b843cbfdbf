"""`ray`: a detached named actor is the job.

A detached actor outlives the agent and is found again by its name. Ray repeats nothing by itself here: no
restarts and no retries. What happened is decided by the job's objects alone, as for every job.
"""

import asyncio
import contextlib
from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeVar

from agent.config.executors import RaySettings
from agent.steps.executors.launcher import LaunchedJob, missing_library
from agent.steps.types.errors import DefiniteFailure

T = TypeVar("T")


class JobActor:
    """Runs one job in a worker process of the cluster."""

    def run(self, program: str, spec_address: str) -> int:
        """Run a job; return its exit code."""
        return run_program(program, spec_address)


def run_program(program: str, spec_address: str) -> int:
    """Call the function that runs a job, named as `module:function`."""
    module, _, name = program.partition(":")
    exit_code: int = getattr(import_module(module), name)(spec_address)
    return exit_code


def reason_of(error: BaseException) -> str:
    """Return in one line why a run in a cluster failed: the error of the worker, where that is known."""
    cause = getattr(error, "cause", None)
    known = cause if isinstance(cause, BaseException) else error
    return ": ".join([type(known).__name__, *str(known).strip().splitlines()[:1]])


class RayLauncher:
    """Launches jobs as actors of a Ray cluster."""

    knows_ends = True

    def __init__(self, settings: RaySettings, program: str) -> None:
        self._settings = settings
        self._program = program
        self._ray: Any = None
        self._lock = asyncio.Lock()
        self._results: dict[str, Any] = {}

    async def ready(self) -> None:
        """Connect to the cluster."""
        async with self._lock:
            if self._ray is None:
                self._ray = await _in_thread(self._connect)

    def _connect(self) -> Any:
        try:
            import ray
        except ImportError:
            raise missing_library("ray", "ray") from None
        try:
            ray.init(
                address=self._settings.address,
                namespace=self._settings.namespace,
                ignore_reinit_error=True,
                log_to_driver=False,
                configure_logging=False,
            )
        except Exception as error:
            text = f"the Ray cluster {self._settings.address!r} cannot be reached: {error}"
            raise DefiniteFailure(text, code="no_cluster", kind="transport") from None
        return ray

    async def launch(self, job: LaunchedJob) -> dict[str, Any]:
        """Create the actor; it waits for its resources in the cluster."""

        def create() -> Any:
            actor = (
                self._ray.remote(JobActor)
                .options(
                    name=job.name,
                    namespace=self._settings.namespace,
                    lifetime="detached",
                    max_restarts=0,
                    max_task_retries=0,
                    **{key: value for key, value in job.options.items() if value is not None},
                )
                .remote()
            )
            return actor.run.remote(self._program, job.objects.spec_address)

        self._results[job.name] = await _in_thread(create)
        return {"actor": job.name}

    async def end_of(self, job: LaunchedJob) -> str | None:
        """Return how the actor ended; None while it runs or waits."""
        return await _in_thread(lambda: self._end_of(job.name))

    def _end_of(self, name: str) -> str | None:
        ray, result = self._ray, self._results.get(name)
        if result is None:
            try:
                ray.get_actor(name, namespace=self._settings.namespace)
            except ValueError:
                return "its actor has ended"
            return None
        if not ray.wait([result], timeout=0)[0]:
            return None
        try:
            return f"its actor ended with exit code {ray.get(result)}"
        except Exception as error:
            return f"its actor died: {reason_of(error)}"

    async def cancel(self, job: LaunchedJob) -> None:
        """Kill the actor with its processes."""
        await self.release(job)

    async def release(self, job: LaunchedJob) -> None:
        """Remove the actor: a detached one would stay."""

        def kill() -> None:
            with contextlib.suppress(ValueError):
                actor = self._ray.get_actor(job.name, namespace=self._settings.namespace)
                self._ray.kill(actor, no_restart=True)

        self._results.pop(job.name, None)
        await _in_thread(kill)

    async def aclose(self) -> None:
        """Disconnect from the cluster; detached actors go on."""
        if self._ray is not None:
            await _in_thread(self._ray.shutdown)
            self._ray = None


async def _in_thread(function: Callable[[], T]) -> T:
    return await asyncio.to_thread(function)
