"""What starts jobs: the protocol that the command, Ray and Dask implement."""

from dataclasses import dataclass
from typing import Any, Protocol

from agent.steps.executors.job_objects import JobObjects
from agent.steps.types.errors import DefiniteFailure


@dataclass(frozen=True, slots=True)
class LaunchedJob:
    """One job, as its launcher knows it."""

    name: str
    """Unique; the same after a restart of the agent."""
    objects: JobObjects
    options: dict[str, Any]
    """What the step asks of the launcher, under its `executor`."""


class Launcher(Protocol):
    """Starts jobs somewhere. None of its functions decides whether a job has begun."""

    knows_ends: bool
    """Whether `end_of` also says that a job has ended which had begun."""

    async def ready(self) -> None:
        """Connect to where jobs run; raise `DefiniteFailure` if that is not possible."""

    async def launch(self, job: LaunchedJob) -> dict[str, Any]:
        """Start a job; return where, for people. Raise `DefiniteFailure` if it surely was not."""

    async def end_of(self, job: LaunchedJob) -> str | None:
        """Return why the job cannot begin or go on any more; None where it may, or nothing is known."""

    async def cancel(self, job: LaunchedJob) -> None:
        """End a job that did not stop by itself."""

    async def release(self, job: LaunchedJob) -> None:
        """Free what a finished job still holds."""


def missing_library(executor: str, library: str) -> DefiniteFailure:
    """Return the failure of a step whose executor needs a library."""
    return DefiniteFailure(
        f"executor: {executor} needs a library: python -m pip install {library}",
        code="no_library",
        kind="input",
        may_retry=False,
    )
