"""`job`: a command of the configuration launches `agent job`, or submits it to a scheduler.

The command does not end with the agent: it has a session of its own, none of the marks by which orphans
are found, and its output goes to a file, since a pipe would break.
"""

import asyncio
import os
import subprocess
import tempfile
from typing import IO, Any, Final

from agent.config.executors import JobSettings
from agent.core.thread_bridge import UnboundedThreads
from agent.steps.executors.launcher import LaunchedJob
from agent.steps.process.environment import inherited
from agent.steps.process.output_capture import ending
from agent.steps.types.errors import DefiniteFailure

SPEC_VARIABLE: Final = "TASK_SPEC_PATH"
NAME_VARIABLE: Final = "TASK_JOB_NAME"
CANCEL_SECONDS: Final = 30.0
_TAIL_BYTES: Final = 2000


class CommandLauncher:
    """Launches jobs by a command."""

    # The command may have submitted the job to a scheduler, or be a client that was killed.
    knows_ends = False

    def __init__(
        self, settings: JobSettings, directory: str | None, threads: UnboundedThreads
    ) -> None:
        self._settings = settings
        self._directory = directory
        self._threads = threads
        self._exits: dict[str, tuple[asyncio.Future[int], IO[bytes]]] = {}

    async def ready(self) -> None:
        """Check that there is a command."""
        if not self._settings.command:
            raise DefiniteFailure(
                "executor: job needs a command that launches jobs: set command in [executors.job] of"
                ' the configuration, as in ["agent", "job"]',
                code="no_job_command",
                kind="input",
                may_retry=False,
            )

    async def launch(self, job: LaunchedJob) -> dict[str, Any]:
        """Start the command."""
        output = tempfile.TemporaryFile()  # noqa: SIM115 - open until the command has ended
        try:
            child = await asyncio.to_thread(self._spawn, self._settings.command, job, output)
        except (OSError, ValueError) as error:
            output.close()
            raise DefiniteFailure(
                f"the job could not be launched: {error}", code="cannot_launch", kind="limit"
            ) from None
        self._exits[job.name] = (self._threads.start(child.wait), output)
        return {"launched_by": child.pid}

    def _spawn(
        self, command: list[str], job: LaunchedJob, output: IO[bytes]
    ) -> subprocess.Popen[bytes]:
        address = job.objects.spec_address
        own = {SPEC_VARIABLE: address, NAME_VARIABLE: job.name}
        return subprocess.Popen(
            [word.replace("{spec}", address).replace("{job}", job.name) for word in command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**inherited(self._settings.inherit), **own},
            cwd=self._directory,
            start_new_session=True,
        )

    async def end_of(self, job: LaunchedJob) -> str | None:
        """Return why the job was not launched: its command failed. Success says nothing."""
        exit_, output = self._exits.get(job.name, (None, None))
        if exit_ is None or output is None or not exit_.done() or exit_.result() == 0:
            return None
        how = f"exit code {exit_.result()}" if exit_.result() > 0 else f"signal {-exit_.result()}"
        return f"its command ended with {how}{ending(_tail(output))}"

    async def cancel(self, job: LaunchedJob) -> None:
        """Run the command that ends a job, if there is one."""
        if not self._settings.cancel_command:
            return
        with tempfile.TemporaryFile() as output:
            try:
                child = await asyncio.to_thread(
                    self._spawn, self._settings.cancel_command, job, output
                )
            except (OSError, ValueError):
                return
            await asyncio.wait([self._threads.start(child.wait)], timeout=CANCEL_SECONDS)

    async def release(self, job: LaunchedJob) -> None:
        """Close the command's files."""
        _, output = self._exits.pop(job.name, (None, None))
        if output is not None:
            output.close()


def _tail(output: IO[bytes]) -> str:
    size = os.fstat(output.fileno()).st_size
    data = os.pread(output.fileno(), _TAIL_BYTES, max(0, size - _TAIL_BYTES))
    return data.decode("utf-8", "replace")
