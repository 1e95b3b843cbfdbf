"""`dask`: one task of the cluster is the job.

Dask runs a task again when its worker died. That run finds `begun` and does nothing, so what acted is not
computed again. The task does not depend on the agent's connection, and is released once its result is known.
"""

import asyncio
from typing import Any, Final

from agent.config.executors import DaskSettings
from agent.steps.executors.launcher import LaunchedJob, missing_library
from agent.steps.executors.ray import reason_of, run_program
from agent.steps.types.errors import DefiniteFailure

CONNECT_SECONDS: Final = 15
_ENDED_BADLY: Final = ("lost", "cancelled")


class DaskLauncher:
    """Launches jobs as tasks of a Dask cluster."""

    knows_ends = True

    def __init__(self, settings: DaskSettings, program: str) -> None:
        self._settings = settings
        self._program = program
        self._client: Any = None
        self._lock = asyncio.Lock()
        self._futures: dict[str, Any] = {}

    async def ready(self) -> None:
        """Connect to the scheduler."""
        async with self._lock:
            if self._client is None:
                self._client = await asyncio.to_thread(self._connect)

    def _connect(self) -> Any:
        if not self._settings.address:
            raise DefiniteFailure(
                "executor: dask needs the address of a scheduler: set address in [executors.dask] of"
                ' the configuration, as in "tcp://127.0.0.1:8786"',
                code="no_cluster",
                kind="input",
                may_retry=False,
            )
        try:
            from distributed import Client
        except ImportError:
            raise missing_library("dask", "distributed") from None
        try:
            return Client(self._settings.address, timeout=CONNECT_SECONDS, set_as_default=False)
        except Exception as error:
            text = f"the Dask scheduler {self._settings.address} cannot be reached: {error}"
            raise DefiniteFailure(text, code="no_cluster", kind="transport") from None

    async def launch(self, job: LaunchedJob) -> dict[str, Any]:
        """Submit the task, once."""

        def submit() -> Any:
            from distributed import fire_and_forget

            future = self._client.submit(
                run_program,
                self._program,
                job.objects.spec_address,
                key=job.name,
                pure=False,
                retries=0,
                resources=job.options.get("resources"),
            )
            fire_and_forget(future)
            return future

        self._futures[job.name] = await asyncio.to_thread(submit)
        return {"task": job.name}

    async def end_of(self, job: LaunchedJob) -> str | None:
        """Return how the task ended; None while it runs, and where this agent did not submit it."""
        future = self._futures.get(job.name)
        if future is None or not future.done():
            return None
        if future.status == "error":
            error = await asyncio.to_thread(lambda: future.exception(timeout=CONNECT_SECONDS))
            return f"its task failed: {reason_of(error)}"
        if future.status in _ENDED_BADLY:
            return f"its task ended: {future.status}"
        exit_code = await asyncio.to_thread(lambda: future.result(timeout=CONNECT_SECONDS))
        return f"its task ended with exit code {exit_code}"

    async def cancel(self, job: LaunchedJob) -> None:
        """Take the task from the scheduler; a running job stops by its own objects."""
        future = self._futures.get(job.name)
        if future is not None:
            await asyncio.to_thread(lambda: self._client.cancel([future], force=True))

    async def release(self, job: LaunchedJob) -> None:
        """Let the scheduler forget the task and its result."""
        future = self._futures.pop(job.name, None)
        if future is not None:
            await asyncio.to_thread(future.release)

    async def aclose(self) -> None:
        """Disconnect from the scheduler; submitted tasks go on."""
        if self._client is not None:
            await asyncio.to_thread(self._client.close)
            self._client = None
