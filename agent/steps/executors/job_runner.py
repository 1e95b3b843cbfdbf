"""What `agent job` does: it runs one attempt from its specification and reports by objects.

The step's code runs in a process of its own (`process_pool`), or is a command, so that code which holds
the interpreter does not silence the job's status. The attempt goes through the same runner as everywhere;
only its journal differs: the agent has recorded the intent of the whole job before it was launched.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import structlog

from agent.config.executors import ProcessSettings
from agent.core.backoff import Backoff
from agent.core.clock import Clock
from agent.core.ids import new_id
from agent.steps.attempt import config_record, runner
from agent.steps.attempt.context import StepContext
from agent.steps.attempt.recorded_calls.calls import Calls
from agent.steps.attempt.secrets import Secrets
from agent.steps.attempt.services import Services
from agent.steps.executors import job_objects, job_spec
from agent.steps.executors.job_objects import JobObjects
from agent.steps.executors.process import PythonExecution, ShellExecution
from agent.steps.process import processes
from agent.steps.spec.configs import RENDERED
from agent.steps.spec.registry import KINDS
from agent.steps.types.attempt_input import AttemptInput, Signals
from agent.steps.types.call_records import CallResult, Intent
from agent.steps.types.errors import DefiniteFailure
from agent.steps.types.outcome import Failed, Json, Outcome, Paused, Retry, StepError, Succeeded
from agent.steps.types.snapshot import SnapshotOperation
from agent.steps.types.state_values import StateOperation

log = structlog.get_logger(__name__)
T = TypeVar("T")

CONTROL_SECONDS: Final = 1.0
"""How often a job looks whether it should stop or pause."""
STORE_SECONDS: Final = 600.0
"""How long a job tries to write its output or its final status."""
_RETRY_SECONDS: Final = 1.0
_MOST_RETRY_SECONDS: Final = 15.0

Document = dict[str, Any]


class JobJournal:
    """Records in memory what the job's status and log objects carry; see `Journal`."""

    def __init__(self) -> None:
        self.pieces: list[tuple[str, str]] = []
        self.saved: Json = None
        self.has_saved = False

    async def intend(self, _: AttemptInput, intent: Intent) -> None:
        """Accept the step's own call, which the agent has recorded; refuse all others."""
        if not intent.settles_step:
            raise _not_here("ctx.call")

    async def keep(self, _: AttemptInput, text: str) -> str | None:
        """Accept a large request: it is part of the specification."""
        return None

    async def operate(
        self, _: AttemptInput, intent: Intent, operation: StateOperation | SnapshotOperation
    ) -> Json:
        """Refuse `ctx.state` and `ctx.snapshot`."""
        is_snapshot = isinstance(operation, SnapshotOperation)
        raise _not_here("ctx.snapshot" if is_snapshot else "ctx.state")

    def resolve(self, _: AttemptInput, result: CallResult) -> None:
        """Leave it to the agent, which resolves the call by the job's status."""

    async def checkpoint(self, _: AttemptInput, value: Json) -> None:
        """Keep a checkpoint for the status; the agent records it when the job has ended."""
        self.saved, self.has_saved = value, True

    def log(self, _: AttemptInput, stream: str, text: str) -> None:
        """Queue a piece of the log; the agent itself records where the job runs."""
        if stream != config_record.STREAM:
            self.pieces.append((stream, text))


def _not_here(what: str) -> DefiniteFailure:
    return DefiniteFailure(
        f"{what} is not available in a job, which has no connection to the agent: use `executor:"
        " process`, or make it a step of its own",
        code="not_in_a_job",
        kind="input",
        may_retry=False,
    )


class Job:
    """One job, from its `begun` to its final status."""

    def __init__(self, objects: JobObjects, spec: Document) -> None:
        self._objects = objects
        self._spec = spec
        self._journal = JobJournal()
        self._signals = Signals()
        self._sequence = 0
        self._log_count = 0
        self._lock = asyncio.Lock()
        """One status at a time: an older one must not replace a newer one."""

    async def run(self) -> bool:
        """Run the attempt and write its result; return whether it succeeded."""
        await self._write_status("running")
        beats = asyncio.ensure_future(self._beat())
        watch = asyncio.ensure_future(self._watch_control())
        try:
            outcome = await self._attempt()
        finally:
            watch.cancel()
            beats.cancel()
        await self._write_outcome(outcome)
        return isinstance(outcome, Succeeded)

    async def _attempt(self) -> Outcome:
        spec = self._spec
        attempt_input = job_spec.attempt_of(spec)
        directory = spec["limits"]["directory"]
        here = directory if directory and Path(directory).is_dir() else None
        services = Services(Clock(), self._journal, job_spec.limits_of(spec, here))
        secrets = Secrets()
        context = StepContext(
            attempt_input, self._signals, services, secrets, Calls(attempt_input, services, secrets)
        )
        context.secret_paths = frozenset(tuple(path) for path in spec["secret_paths"])
        kind = KINDS[spec["kind"]]
        settings = ProcessSettings(processes=1)
        execution = (
            PythonExecution(settings, {}, services)
            if kind.name == "python"
            else ShellExecution(settings, {})
        )
        try:
            config = kind.model.model_validate(spec["config"], context=RENDERED)
            await execution.ready(context)
            return await runner.run_handler(execution.run, config, context)
        except DefiniteFailure as error:
            return Retry(error.error) if error.may_retry else Failed(error.error)
        finally:
            execution.close()
            await services.aclose()

    async def _beat(self) -> None:
        """Write the status again and again: its number is how the agent knows that the job lives."""
        while True:
            await asyncio.sleep(self._spec["status_seconds"])
            try:
                # A thread cannot be stopped: the final status waits until this one is written.
                await asyncio.shield(self._write_status("running"))
            except Exception as error:
                # The agent counts only the time in which it can read the store.
                log.warning("job.status_not_written", error=str(error))

    async def _watch_control(self) -> None:
        while True:
            await asyncio.sleep(min(CONTROL_SECONDS, self._spec["status_seconds"]))
            with contextlib.suppress(Exception):
                control = await asyncio.to_thread(self._objects.read, job_objects.CONTROL) or {}
                self._signals.is_pausing = bool(control.get("pause"))
                if control.get("cancel") and not self._signals.is_stopping:
                    self._signals.stop_for("canceled")

    async def _write_outcome(self, outcome: Outcome) -> None:
        match outcome:
            case Succeeded():
                document = {"output": outcome.output}
                await _persist(lambda: self._objects.write(job_objects.OUTPUT, document))
                await _persist_async(lambda: self._write_status("succeeded"))
            case Retry() | Failed():
                error, unknown = outcome.error, False
                if isinstance(outcome, Retry):
                    unknown = outcome.is_unknown
                await _persist_async(
                    lambda: self._write_status(
                        "failed",
                        error=_described(error),
                        may_retry=isinstance(outcome, Retry),
                        is_unknown=unknown,
                    )
                )
            case Paused():
                await _persist_async(lambda: self._write_status("paused"))
            case _:
                await _persist_async(lambda: self._write_status("canceled"))

    async def _write_status(self, state: str, **facts: Any) -> None:
        async with self._lock:
            pieces, self._journal.pieces = self._journal.pieces, []
            if pieces:
                name = job_objects.log_name(self._log_count + 1)
                try:
                    await asyncio.to_thread(self._objects.write, name, {"pieces": pieces})
                except BaseException:
                    self._journal.pieces = pieces + self._journal.pieces
                    raise
                self._log_count += 1
            self._sequence += 1
            status = {
                "sequence": self._sequence,
                "state": state,
                "logs": self._log_count,
                "process": own_process(),
                **facts,
            }
            if self._journal.has_saved:
                status["checkpoint"] = self._journal.saved
            await asyncio.to_thread(self._objects.write, job_objects.STATUS, status)


def own_process() -> Document:
    """Return which process this is, so that an agent on the same machine can tell whether it runs."""
    process_id = os.getpid()
    return {
        "host": socket.gethostname(),
        "id": process_id,
        "started": processes.start_time(process_id) or "",
        "namespace": processes.pid_namespace(process_id),
    }


def _described(error: StepError) -> Document:
    return {"code": error.code, "class": error.kind, "message": error.message}


async def _persist(write: Callable[[], None]) -> None:
    await _persist_async(lambda: asyncio.to_thread(write))


async def _persist_async(write: Callable[[], Awaitable[None]]) -> None:
    """Write what must not be lost: the store may be away for a while."""
    loop = asyncio.get_running_loop()
    deadline, backoff = loop.time() + STORE_SECONDS, Backoff(_RETRY_SECONDS, _MOST_RETRY_SECONDS)
    while True:
        try:
            await write()
        except Exception as error:
            if loop.time() > deadline:
                raise
            log.warning("job.result_not_written", error=str(error))
            await asyncio.sleep(backoff.next_seconds())
        else:
            return


async def run(objects: JobObjects) -> int:
    """Run the job whose specification is in these objects; return the exit code."""
    try:
        spec = await asyncio.to_thread(objects.read, job_objects.SPEC)
    except Exception as error:
        reason = f"its specification at {objects.spec_address} cannot be read: {error}"
        log.error("job.refused", reason=reason)
        return 1
    if spec is None:
        log.error("job.refused", reason=f"there is no specification at {objects.spec_address}")
        return 1
    if spec["version"] != job_spec.VERSION:
        version = spec["version"]
        reason = (
            f"its specification has version {version}, and this program reads {job_spec.VERSION}"
        )
        log.error("job.refused", reason=reason)
        return 1
    begun = {"by": "job", "token": new_id(), **own_process()}
    if not await asyncio.to_thread(objects.create, job_objects.BEGUN, begun):
        log.error("job.refused", reason="it has begun already, or its agent gave it up")
        return 1
    return 0 if await Job(objects, spec).run() else 1
