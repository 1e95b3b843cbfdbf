"""Watches one job by its objects, on the monotonic clock of the agent."""

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from agent.config.executors import JobSettings
from agent.core.ids import new_id
from agent.steps.attempt.context import StepContext
from agent.steps.attempt.outcome_rules import SHUTDOWN
from agent.steps.executors import job_objects
from agent.steps.executors.launcher import LaunchedJob, Launcher
from agent.steps.process import processes
from agent.steps.types.errors import DefiniteFailure
from agent.steps.types.outcome import Json
from agent.store.db.database import StoreError
from agent.store.db.dialect import Fault

if TYPE_CHECKING:
    from agent.store.artifacts.blobs import BlobStores

T = TypeVar("T")
Document = dict[str, Any]

FINAL: Final = ("succeeded", "failed", "paused", "canceled")
_FIRST_POLL_SECONDS: Final = 0.05
_POLL_FACTOR: Final = 1.5


class JobLostError(Exception):
    """A job began and gives no sign of life any more."""

    def __init__(self, message: str, code: str, *, has_ended: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.has_ended = has_ended
        """Whether it is known that nothing of it runs any more."""


class JobWatch:
    """The agent's view of one job."""

    def __init__(
        self,
        executor: str,
        job: LaunchedJob,
        launcher: Launcher,
        settings: JobSettings,
        stores: "BlobStores",
        context: StepContext,
    ) -> None:
        self._executor = executor
        self._job = job
        self._objects = job.objects
        self._launcher = launcher
        self._settings = settings
        self._stores = stores
        self._context = context
        self._clock = context.services.clock
        self._logs_read = 0
        self._control: Document = {}
        self._place: Document | None = None

    async def bounded(self, function: Callable[[], T]) -> T:
        """Call the store in a thread, within the time that it has to answer."""
        try:
            async with asyncio.timeout(self._stores.timeout_seconds):
                return await self._context.services.threads.start(function)
        except TimeoutError:
            raise StoreError(Fault.UNREACHABLE, "the store of jobs did not answer") from None
        except Exception as error:
            # Drivers raise errors of their own.
            raise StoreError(Fault.UNREACHABLE, str(error) or type(error).__name__) from None

    async def is_specified(self) -> bool:
        """Whether there is a specification of the job."""
        return await self._patiently(lambda: self._objects.read(job_objects.SPEC)) is not None

    async def is_launched(self) -> bool:
        """Whether the launcher had accepted the job, or the job has begun."""
        for name in (job_objects.LAUNCHED, job_objects.BEGUN):
            if await self._patiently(lambda name=name: self._objects.read(name)) is not None:  # type: ignore[misc]
                return True
        return False

    async def prevent(self) -> bool:
        """Keep the job from beginning; return False if it has begun."""
        begun = {"by": "agent", "token": new_id()}
        created: bool = await self._patiently(
            lambda: self._objects.create(job_objects.BEGUN, begun)
        )
        return created

    async def _patiently(self, function: Callable[[], T]) -> T:
        """Call the store until it answers: what it says decides whether an effect is repeated."""
        while True:
            try:
                return await self.bounded(function)
            except StoreError:
                await asyncio.sleep(self._settings.poll_seconds)

    async def until_end(self, start_seconds: float, *, may_pause: bool) -> Document | None:
        """Return the job's final status; None if this agent stops first, and the job goes on.

        Raise `DefiniteFailure` if it never began, and `JobLostError` if it is silent. Only time between
        two answers of the store counts: a store that is away says nothing about a job.
        """
        poll_seconds, silent_seconds = _FIRST_POLL_SECONDS, 0.0
        sequence, read_at = -1, self._clock.monotonic()
        while True:
            status = await self._read_status()
            now = self._clock.monotonic()
            if status is not _UNREADABLE:
                silent_seconds += now - read_at
                current = status["sequence"] if status else -1
                if current != sequence:
                    sequence, silent_seconds = current, 0.0
                if status is not None and status["state"] in FINAL:
                    final: Document = status
                    return final
                await self._check(status, silent_seconds, start_seconds)
            read_at = now
            if self._context.signals.stop_reason == SHUTDOWN:
                return None
            if may_pause:
                await self._ask_to_pause()
            await asyncio.sleep(min(poll_seconds, self._settings.poll_seconds))
            poll_seconds *= _POLL_FACTOR

    async def _read_status(self) -> Any:
        try:
            status = await self.bounded(lambda: self._objects.read(job_objects.STATUS))
            if status:
                self._note_place(status.get("process") or {})
                await self._read_logs(status)
        except StoreError:
            return _UNREADABLE
        return status

    def _note_place(self, process: Document) -> None:
        """Record where the job runs, for people."""
        place = {"host": process.get("host"), "process": process.get("id")}
        if place != self._place:
            self._place = place
            executor = {"executor": self._executor, "job": self._job.name}
            self._context.note_executor({**executor, **place})

    async def _read_logs(self, status: Document) -> None:
        while self._logs_read < status["logs"]:
            name = job_objects.log_name(self._logs_read + 1)
            content = await self.bounded(lambda name=name: self._objects.read(name))  # type: ignore[misc]
            for stream, text in (content or {}).get("pieces", ()):
                self._context.log_text(stream, text)
            self._logs_read += 1

    async def _check(
        self, status: Document | None, silent_seconds: float, start_seconds: float
    ) -> None:
        """Raise if the job never began, or is lost."""
        ended = await self._launcher.end_of(self._job)
        if status is None:
            if ended is None and silent_seconds < start_seconds:
                return
            reason = ended or f"it did not begin within {start_seconds:g} s"
            if await self.prevent():
                await self._stop_launcher()
                raise DefiniteFailure(
                    f"job never started: {reason}", code="never_started", kind="crash"
                )
            # It has begun meanwhile, or has died before its first status.
            if silent_seconds < start_seconds + self._settings.heartbeat_seconds:
                return
            raise JobLostError(f"heartbeat timeout: {reason}", "heartbeat_timeout")
        if _has_ended_here(status.get("process") or {}):
            await self._expect_final("its process has ended without a result")
        elif ended is not None and self._launcher.knows_ends:
            await self._expect_final(ended)
        elif silent_seconds >= self._settings.heartbeat_seconds:
            seconds = self._settings.heartbeat_seconds
            text = f"heartbeat timeout: the job's status has not changed for {seconds:g} s"
            raise JobLostError(text, "heartbeat_timeout")

    async def _expect_final(self, reason: str) -> None:
        """Raise, unless the job has written its final status just before it ended."""
        status = await self._read_status()
        if status is _UNREADABLE or (status and status["state"] in FINAL):
            return
        raise JobLostError(f"the job is lost: {reason}", "job_lost", has_ended=True)

    async def _ask_to_pause(self) -> None:
        if bool(self._control.get("pause")) != self._context.should_pause:
            with contextlib.suppress(StoreError):
                await self._write_control(pause=self._context.should_pause)

    async def _write_control(self, **control: bool) -> None:
        control = {**self._control, **control}
        await self.bounded(lambda: self._objects.write(job_objects.CONTROL, control))
        self._control = control

    async def prevent_or_stop(self) -> None:
        """Keep a job from beginning, or stop it: its attempt is over."""
        if await self.prevent():
            await self._stop_launcher()
        else:
            await self.stop()

    async def stop_lost(self, error: JobLostError) -> None:
        """Stop what may be left of a lost job; one that has ended is not waited for."""
        if error.has_ended:
            await self._stop_launcher()
        else:
            await self.stop()

    async def stop(self) -> Document | None:
        """Ask the job to stop, then its launcher; return its final status if it wrote one."""
        with contextlib.suppress(StoreError):
            await self._write_control(cancel=True)
        grace_seconds = self._context.services.limits.kill_grace_seconds
        deadline = self._clock.monotonic() + grace_seconds + 2 * self._settings.poll_seconds
        while self._clock.monotonic() < deadline:
            status = await self._read_status()
            if status is not _UNREADABLE and status and status["state"] in FINAL:
                final: Document = status
                return final
            await asyncio.sleep(min(0.2, self._settings.poll_seconds))
        await self._stop_launcher()
        return None

    async def _stop_launcher(self) -> None:
        with contextlib.suppress(Exception):
            await self._launcher.cancel(self._job)

    async def finish(self, status: Document) -> Json:
        """Return the output of a job that has ended, and let its launcher forget it."""
        output: Json = None
        if status["state"] == "succeeded":
            document = await self._patiently(lambda: self._objects.read(job_objects.OUTPUT))
            if document is None:
                text = "the job succeeded, and its output is missing from the store"
                raise JobLostError(text, "output_missing")
            output = document["output"]
        with contextlib.suppress(Exception):
            await self._launcher.release(self._job)
        return output


class _Unreadable:
    """The store did not answer."""


_UNREADABLE: Any = _Unreadable()


def _has_ended_here(process: Document) -> bool:
    """Whether a job's process was on this machine and has ended; False where that is not known."""
    here = processes.pid_namespace(os.getpid())
    if not here or process.get("namespace") != here or process.get("host") != socket.gethostname():
        return False
    started = process.get("started", "")
    return bool(started) and not processes.is_running(process["id"], started)
