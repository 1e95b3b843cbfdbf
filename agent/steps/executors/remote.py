"""Runs an attempt as a job: launches it, watches its objects, and finds it again after a crash.

The launch is a journaled call: its intent is durable before any object of the job exists. A later attempt
that finds the call unknown reads the objects (`_find`): a finished job gives its result, one that is alive
is watched on, one that never began is kept from beginning, and one that is silent is lost.
"""

import asyncio
import contextlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel

from agent.config.executors import JobSettings
from agent.core.waits import Timer
from agent.steps.attempt.context import StepContext
from agent.steps.attempt.outcome_rules import DECLARED_DEAD, SHUTDOWN
from agent.steps.attempt.time_limit import time_limit_of
from agent.steps.executors import job_objects, job_spec
from agent.steps.executors.job_objects import JobObjects
from agent.steps.executors.job_watch import JobLostError, JobWatch
from agent.steps.executors.launcher import LaunchedJob, Launcher
from agent.steps.types.call_records import RecordedCall
from agent.steps.types.call_types import Call, Found
from agent.steps.types.errors import (
    Applied,
    DefiniteFailure,
    EndCallError,
    UnknownOutcomeError,
)
from agent.steps.types.outcome import Json, Outcome, Paused, StepError, Succeeded, Waiting
from agent.store.artifacts import objects
from agent.store.db.database import StoreError

if TYPE_CHECKING:
    from agent.store.artifacts.blobs import BlobStores

PAUSED: Final = "paused"
"""The error code of a job that stopped at a checkpoint for a pause."""


@dataclass(frozen=True, slots=True)
class JobStore:
    """Where the objects of jobs are, and how they are reached."""

    url: str
    stores: "BlobStores"


class RemoteExecution:
    """One attempt that runs as a job."""

    def __init__(
        self,
        name: str,
        kind: str,
        options: dict[str, Any],
        launcher: Launcher,
        settings: JobSettings,
        store: JobStore,
    ) -> None:
        self._name = name
        self._kind = kind
        self._options = options
        self._launcher = launcher
        self._settings = settings
        self._store = store
        self._start_seconds = float(options.get("start_within") or settings.start_seconds)

    async def ready(self, _: StepContext) -> None:
        """Connect to where jobs run."""
        await self._launcher.ready()

    def close(self) -> None:
        """Nothing to give back."""

    async def run(self, config: BaseModel, context: StepContext) -> Outcome:
        """Run the attempt as one journaled call."""
        is_effect = getattr(config, "effect", None) == ("once" if self._kind == "python" else None)
        document = config.model_dump(by_alias=True, exclude_defaults=True, mode="json")
        body = {
            self._kind: document,
            # Where a job runs decides where it is found again.
            "executor": self._name,
            "store": _without_password(self._store.url),
        }
        context.runs_elsewhere = True

        async def perform(call: Call) -> Json:
            job = self._job(
                job_objects.of_call(
                    self._store.url,
                    self._options_of_store,
                    call.remote_key,
                    context.attempt,
                    call.call_id,
                )
            )
            try:
                return await self._launch(job, document, context, is_effect=is_effect)
            except asyncio.CancelledError:
                if context.signals.stop_reason != DECLARED_DEAD:
                    raise
                # The next attempt, on another worker, watches the job: its call stays as it is.
                now = context.services.clock.now()
                raise EndCallError(Waiting(Timer(now), now, context.checkpoint)) from None

        async def find(call: RecordedCall) -> Found:
            return await self._find(call, context, is_effect=is_effect)

        # After a pause the same attempt launches another job, which is another call.
        context.calls.skip(
            sum((call.error or {}).get("code") == PAUSED for call in context.attempt_input.calls)
        )
        request = context.request(self._name, body, on_unknown="ask" if is_effect else "retry")
        request = replace(request, is_effect=is_effect, lookup=find)
        answer = await context.perform(request, perform, lambda: self._await_store(context))
        return Succeeded(answer.response, idempotency_key=answer.idempotency_key)

    async def _await_store(self, context: StepContext) -> None:
        """Before the intent: let the step wait, at no cost, while the store of jobs does not answer."""
        stores, url = self._store.stores, self._store.url
        try:
            await stores.breaker(url).call_async(
                lambda: objects.check(url, self._options_of_store()), stores.timeout_seconds
            )
        except StoreError as error:
            context.calls.await_store(error.message)

    def _options_of_store(self) -> Any:
        return self._store.stores.options(self._store.url)

    def _job(self, objects: JobObjects) -> LaunchedJob:
        return LaunchedJob(f"agent-{objects.lease}", objects, self._options)

    def _watch(self, job: LaunchedJob, context: StepContext) -> JobWatch:
        return JobWatch(
            self._name, job, self._launcher, self._settings, self._store.stores, context
        )

    async def _launch(
        self, job: LaunchedJob, config: dict[str, Json], context: StepContext, *, is_effect: bool
    ) -> Json:
        """Write the specification, launch the job and wait for its result."""
        watch = self._watch(job, context)
        seconds = time_limit_of(context.attempt_input, context.services).seconds
        spec = await asyncio.to_thread(
            job_spec.document_of,
            context,
            self._kind,
            config,
            seconds,
            self._settings.status_seconds,
        )
        try:
            await watch.bounded(lambda: job.objects.write(job_objects.SPEC, spec))
        except Exception as error:
            text = f"the job's specification could not be written: {error}"
            raise DefiniteFailure(text, code="cannot_launch", kind="transport") from None
        where = await self._start(watch, job, context)
        context.note_executor({"executor": self._name, "job": job.name, **where})
        return await self._result(watch, context, is_effect=is_effect)

    async def _start(
        self, watch: JobWatch, job: LaunchedJob, context: StepContext
    ) -> dict[str, Json]:
        """Launch the job and record that; stop it if the attempt is over before it is recorded."""
        try:
            where = await self._accepted(watch, job)
            with contextlib.suppress(Exception):
                # Without it the next attempt keeps the job from beginning, which is safe too.
                await watch.bounded(lambda: job.objects.write(job_objects.LAUNCHED, where))
        except asyncio.CancelledError:
            if _is_over(context):
                await watch.prevent_or_stop()
            raise
        return where

    async def _accepted(self, watch: JobWatch, job: LaunchedJob) -> dict[str, Json]:
        """Return the launcher's answer; where it fails, keep the job from beginning, or go on with it."""
        try:
            return await self._launcher.launch(job)
        except DefiniteFailure:
            raise
        except Exception as error:
            if await watch.prevent():
                raise _never_started(str(error)) from None
            return {}

    async def _result(self, watch: JobWatch, context: StepContext, *, is_effect: bool) -> Json:
        """Wait for the job's result; what is unknown of an effect is raised as such."""
        try:
            try:
                status = await watch.until_end(self._start_seconds, may_pause=not is_effect)
            except asyncio.CancelledError:
                status = await self._interrupted(watch, context)
                if status is None or status["state"] == "canceled":
                    is_out_of_time = context.is_interrupted() and not context.signals.is_stopping
                    if is_effect and is_out_of_time:
                        raise UnknownOutcomeError(_timeout_error(context)) from None
                    raise
            if status is None:
                now = context.services.clock.now()
                raise EndCallError(Waiting(Timer(now), now, context.checkpoint))
            output = await watch.finish(status)
        except JobLostError as error:
            await watch.stop_lost(error)
            if is_effect:
                text = f"{error}; whether it took effect is unknown"
                raise UnknownOutcomeError(StepError(error.code, "unknown", text)) from None
            raise DefiniteFailure(str(error), code=error.code, kind="crash") from None
        if status["state"] == "succeeded":
            return output
        raise await self._failure(status, context, is_effect=is_effect)

    async def _interrupted(self, watch: JobWatch, context: StepContext) -> Json:
        """Stop the job of an attempt that is over; leave it alone if only this agent ends."""
        return await watch.stop() if _is_over(context) else None

    async def _failure(
        self, status: dict[str, Json], context: StepContext, *, is_effect: bool
    ) -> Exception:
        """Return what a job that did not succeed means."""
        if status["state"] == "paused":
            error = StepError(PAUSED, "limit", "the job stopped at a checkpoint for a pause")
            return EndCallError(Paused(status.get("checkpoint")), error)
        if "checkpoint" in status and not is_effect:
            await context.save(status["checkpoint"])
        described = status.get("error") or {
            "code": "canceled",
            "class": "crash",
            "message": "the job was stopped before its end",
        }
        error = StepError(described["code"], described["class"], described["message"])
        if error.code == "timeout":
            error = replace(error, message=f"execution timeout: {error.message}")
        if is_effect and (status.get("is_unknown") or status["state"] == "canceled"):
            return UnknownOutcomeError(replace(error, kind="unknown"))
        may_retry = bool(status.get("may_retry", True))
        return DefiniteFailure(error.message, code=error.code, kind=error.kind, may_retry=may_retry)

    async def _objects_of(self, call: RecordedCall) -> JobObjects | None:
        """Return the objects of a recorded call; wait for a store that does not answer."""
        while True:
            try:
                return await asyncio.to_thread(
                    job_objects.of_recorded, self._store.url, self._options_of_store, call
                )
            except Exception:
                await asyncio.sleep(self._settings.poll_seconds)

    async def _find(self, call: RecordedCall, context: StepContext, *, is_effect: bool) -> Found:
        """Find the job of an unknown call: return its result, its failure, or None if it is lost."""
        objects = await self._objects_of(call)
        watch = None if objects is None else self._watch(self._job(objects), context)
        try:
            if watch is None or not await watch.is_specified():
                # Its agent died before it wrote anything; or its objects were removed.
                return None if is_effect else _never_started("the store has no object of it")
            if not await watch.is_launched() and await watch.prevent():
                return _never_started("its agent ended before it was launched")
        except asyncio.CancelledError:
            if watch is not None and _is_over(context):
                await watch.prevent_or_stop()
            raise
        try:
            return Applied(await self._result(watch, context, is_effect=is_effect))
        except (DefiniteFailure, EndCallError) as error:
            return error
        except UnknownOutcomeError:
            return None


def _is_over(context: StepContext) -> bool:
    """Whether the attempt was canceled or timed out, and not only this agent stops working on it."""
    leaves = context.signals.stop_reason in (SHUTDOWN, DECLARED_DEAD)
    return context.is_interrupted() and not leaves


def _never_started(reason: str) -> DefiniteFailure:
    return DefiniteFailure(f"job never started: {reason}", code="never_started", kind="crash")


def _timeout_error(context: StepContext) -> StepError:
    seconds = time_limit_of(context.attempt_input, context.services).seconds
    text = f"execution timeout: the job took longer than {seconds:g} s and was stopped"
    return StepError("timeout", "unknown", f"{text}; whether it took effect is unknown")


def _without_password(url: str) -> str:
    scheme, separator, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}{separator}{host.rpartition('@')[2]}{slash}{path}" if separator else url
