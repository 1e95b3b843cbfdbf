"""What people read of a worker of a cluster that failed before its job began."""

import asyncio
from typing import Any

from agent.config.executors import DaskSettings
from agent.steps.executors.dask import DaskLauncher
from agent.steps.executors.job_objects import JobObjects
from agent.steps.executors.launcher import LaunchedJob
from agent.steps.executors.ray import reason_of


class FailedFuture:
    """A task of Dask that failed on its worker."""

    status = "error"

    def done(self) -> bool:
        """Whether it has ended."""
        return True

    def exception(self, **_: Any) -> Exception:
        """Return what it raised."""
        return ModuleNotFoundError("No module named 'agent'\nmore of it")


class TaskError(Exception):
    """An error of Ray: its text begins with where it ran."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(f"ray::JobActor.run() (pid=7)\n{cause}")
        self.cause = cause


def test_the_reason_of_a_dask_worker_is_its_error() -> None:
    """Not only that its task ended with an error."""
    launcher = DaskLauncher(DaskSettings(), "agent.bootstrap:run_job")
    job = LaunchedJob("agent-1", JobObjects("/nonexistent/agent-1", dict), {})
    launcher._futures[job.name] = FailedFuture()
    ended = asyncio.run(launcher.end_of(job))
    assert ended == "its task failed: ModuleNotFoundError: No module named 'agent'"


def test_the_reason_of_a_ray_worker_is_its_own_error() -> None:
    """Not the line that says where it ran; of other errors the first line is the reason."""
    assert reason_of(TaskError(ImportError("no agent"))) == "ImportError: no agent"
    assert reason_of(RuntimeError("it died\nwhere")) == "RuntimeError: it died"
    assert reason_of(RuntimeError()) == "RuntimeError"
