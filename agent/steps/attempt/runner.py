"""One attempt, from what was claimed to its outcome: `if`, items, configuration, kind, checks.

`run` never raises. Whatever happens becomes an outcome, and an effect that may have happened is
never told as anything but unknown.
"""

import asyncio
import contextlib
from dataclasses import replace
from typing import Final

from pydantic import BaseModel

from agent.core.clock import SECOND
from agent.core.state_machine import CallStatus
from agent.steps.attempt import prepare, replay
from agent.steps.attempt.calls import Calls, exhausted, is_out_of_time, out_of_time
from agent.steps.attempt.cancel_scope import CancelScope
from agent.steps.attempt.containment import (
    MAX_ERROR_TEXT,
    StepExitError,
    described,
    is_interruption,
    trace,
)
from agent.steps.attempt.context import StepContext
from agent.steps.attempt.prepare import PreparedStep
from agent.steps.attempt.secrets import Secrets, secret_watcher
from agent.steps.attempt.services import Services
from agent.steps.spec.output_checks import check, far_too_large, large
from agent.steps.spec.registry import KINDS, Handler, Kind
from agent.steps.types.attempt_input import AttemptInput, RevokedError, Signals
from agent.steps.types.errors import DefiniteFailure, EndAttempt
from agent.steps.types.outcome import (
    Failed,
    Outcome,
    Retry,
    Returned,
    StepError,
    Succeeded,
    Waiting,
)
from agent.steps.types.value_sizes import is_small, surely_exceeds
from agent.store.db.json_values import NotPlainJsonError

SHUTDOWN: Final = "shutdown"
"""The stop reason that lets calls in flight finish."""

FIND_OUT_ATTEMPTS: Final = 3
"""How often a step may look for what became of its calls after its last attempt to act.

Bounded, because even that runs the step's code, which may take its worker down each time.
"""

PARKING_ATTEMPTS: Final = 20
"""How often a step that has only to wait or to ask may be lost beyond its attempts.

They are for what acts: a machine that crashed a few times must not end a wait of a month. Bounded
all the same, because its templates run in the worker.
"""


LOAD_SECONDS: Final = 60.0
"""For importing what an attempt needs, before its own time begins."""

_MAX_MESSAGE: Final = 2 * MAX_ERROR_TEXT

_TASK_OVER: Final = StepError("deadline", "timeout", "the task's time was over")
_STEP_OVER: Final = StepError("budget_exhausted", "timeout", "the step's time was over")


async def run(claimed: AttemptInput, signals: Signals, services: Services) -> Outcome:
    """Run one attempt of one step and return what it ended in."""
    secrets = Secrets()
    try:
        prepare.watch_secrets(claimed.graph)
        secret_watcher.refresh()
        is_heavy = prepare.is_heavy(claimed)
    except Exception as problem:
        return Failed(_internal(problem, secrets))
    if is_heavy:
        try:
            prepared = await asyncio.to_thread(_prepared, claimed, services, secrets)
        except asyncio.CancelledError:
            return Returned(SHUTDOWN)
    else:
        prepared = _prepared(claimed, services, secrets)
    if not isinstance(prepared, tuple):
        return prepared
    plan, config = prepared
    calls = Calls(claimed, services, secrets)
    context = StepContext(claimed, signals, services, secrets, calls)
    context.secret_places = plan.secret_places
    try:
        kind = plan.kind
        if (not kind.is_loaded or kind.ready is not None) and not await _get_ready(
            kind, config, context
        ):
            return Returned(SHUTDOWN)
        outcome = await _attempt(plan.kind.handler, config, context)
        return _without_secrets(outcome, secrets)
    except Exception as problem:
        return Failed(_internal(problem, secrets))
    finally:
        signals.on_stop = None
        calls.on_idle = None
        calls.is_revoked = True


def _prepared(
    claimed: AttemptInput, services: Services, secrets: Secrets
) -> Outcome | tuple[PreparedStep, BaseModel]:
    """Return what the attempt is to do, or its outcome where nothing is; any thread may ask."""
    try:
        if not claimed.may_act and not (_may_find_out(claimed) or _may_park(claimed)):
            return Failed(exhausted(claimed))
        if not prepare.is_wanted(claimed):
            return Succeeded(skipped="if")
        if claimed.is_group:
            return prepare.items_of(claimed, services.limits.items_per_group)
        plan = prepare.plan_of(claimed.step)
        if claimed.step.approval is None:
            config = prepare.config_of(claimed, plan)
        else:
            passed = prepare.gated(claimed, plan)
            if isinstance(passed, Waiting):
                return passed
            if not claimed.may_act and not _may_find_out(claimed):
                return Failed(exhausted(claimed))
            config = passed
        return plan, config
    except DefiniteFailure as problem:
        return _without_secrets(Failed(problem.error), secrets)
    except BaseException as problem:
        return Failed(_internal(problem, secrets))


async def _get_ready(kind: Kind, config: object, context: StepContext) -> bool:
    """Load the kind's code and what it needs, before the attempt's time begins.

    Loading takes a second or more, in a thread: other attempts go on. False when the worker ends.
    """
    try:
        # What fails here, or takes longer, is met again on the attempt's own time.
        with contextlib.suppress(Exception):
            async with asyncio.timeout(LOAD_SECONDS):
                if not kind.is_loaded:
                    await asyncio.to_thread(getattr, kind, "handler")
                if kind.ready is not None:
                    await kind.ready(config, context)
    except asyncio.CancelledError:
        return False
    return True


async def _attempt(handler: Handler, config: object, context: StepContext) -> Outcome:
    """Run the kind under the attempt's time, and decide what its end means."""
    claimed = context.claimed
    if is_out_of_time(claimed, context.services.clock):
        return out_of_time(claimed, context.checkpoint)
    seconds, over = _time_left(context)
    if seconds is not None and seconds <= 0:
        return Failed(over or _timed_out(context, seconds))
    outcome: Outcome | None = None
    problem: BaseException | None = None
    try:
        with CancelScope(seconds) as scope:
            _listen(context, scope)
            try:
                outcome = await handler(config, context)
            except (Exception, EndAttempt) as raised:
                problem = raised
            except BaseException as raised:
                if is_interruption(raised):
                    raise
                problem = StepExitError(_code_of(context), raised)
    except asyncio.CancelledError as cancellation:
        # The worker ends and the attempt was not over in time, or the step's code did it.
        is_stopping = context.signals.is_stopping
        if context.signals.is_out_of_hand or (is_stopping and context.calls.is_cut_off):
            raise
        if is_stopping:
            return Returned(SHUTDOWN)
        problem = StepExitError(_code_of(context), cancellation)
    if context.calls.ended is not None:
        return context.calls.ended
    if scope.is_over():
        is_stopped = context.signals.is_stopping
        is_known = isinstance(outcome, Succeeded) and (
            is_stopped or outcome.idempotency_key is not None
        )
        if not is_known:
            if is_stopped:
                return Returned(context.signals.stop_reason or "stopped")
            assert seconds is not None
            return Failed(over) if over is not None else Retry(_timed_out(context, seconds))
    if problem is not None:
        return _classified(problem, context)
    assert outcome is not None
    if not isinstance(outcome, Succeeded) or is_small(outcome.output):
        return _taken(outcome, context)
    work = asyncio.ensure_future(asyncio.to_thread(_taken, outcome, context, is_large=True))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        # The worker ends, and the step has ended already: its output is checked and kept.
        return await work


def _taken(outcome: Outcome, context: StepContext, *, is_large: bool = False) -> Outcome:
    """Check an outcome, whatever its value does when it is read; any thread may."""
    try:
        return _checked(outcome, context, is_large=is_large)
    except BaseException as raised:  # a method of what the step's code returned
        text = f"what {_code_of(context)} returned raised {described(raised)} when it was read"
        error = StepError("bad_output", "code", context.secrets.redact(text))
        key = outcome.idempotency_key if isinstance(outcome, Succeeded) else None
        return Failed(error, key)


def _code_of(context: StepContext) -> str:
    """Name the code of a step, for errors."""
    step = context.claimed.step
    call = step.config.get("call") if step.kind == "python" else None
    return call if isinstance(call, str) else f"the {step.kind} step {step.name!r}"


def _listen(context: StepContext, scope: CancelScope) -> None:
    """Let the engine interrupt the attempt; on shutdown only once no call is in flight."""
    calls, signals = context.calls, context.signals

    def interrupt() -> None:
        if signals.stop_reason == SHUTDOWN and calls.in_flight > 0:
            calls.on_idle = interrupt
            return
        calls.on_idle = None
        calls.is_revoked = True
        scope.end_soon()

    context.is_interrupted = scope.is_over
    signals.on_stop = interrupt
    if signals.is_stopping:
        interrupt()


def _time_left(context: StepContext) -> tuple[float | None, StepError | None]:
    """Return the seconds that the attempt has, and the error that ends the step with them.

    None when only the attempt ends then, and another one may follow.
    """
    claimed = context.claimed
    seconds, error = claimed.step.timeout_seconds, None
    if seconds is None:
        seconds = _default_seconds(context)
    own = None if claimed.pauses_when_time_is_over else claimed.deadline
    for deadline, over in ((claimed.task.deadline, _TASK_OVER), (own, _STEP_OVER)):
        if deadline is None:
            continue
        left = (deadline - context.services.clock.now()) / SECOND
        if seconds is None or left < seconds:
            seconds, error = left, over
    return seconds, error


def _default_seconds(context: StepContext) -> float | None:
    """Return the bound on an attempt for which the definition gives no time at all."""
    claimed = context.claimed
    step, kind = claimed.step, KINDS.get(claimed.step.kind)
    if step.has_no_timeout or kind is None or not kind.runs_code:
        return None
    most = context.services.limits.attempt_seconds
    if claimed.task.deadline is not None:
        return None
    if claimed.graph.timeout_seconds is not None:
        # The task is paused when its time is over, which ends no attempt.
        most = max(most, claimed.graph.timeout_seconds)
    if claimed.deadline is not None:
        if not claimed.pauses_when_time_is_over:
            return None
        most = max(most, (claimed.deadline - context.services.clock.now()) / SECOND)
    return most


def _timed_out(context: StepContext, seconds: float) -> StepError:
    text = f"the attempt took longer than {seconds:g} s"
    if context.claimed.step.timeout_seconds is None:
        text += " ([steps] attempt_seconds; set timeout: on the step)"
    return StepError("timeout", "timeout", text)


def _classified(problem: BaseException, context: StepContext) -> Outcome:
    """Turn what the kind raised into an outcome."""
    if isinstance(problem, EndAttempt):
        return problem.outcome
    # Another attempt's context is revoked too: to be given back for that would cost no attempt, and
    # the step would begin again at once, without end.
    if isinstance(problem, RevokedError) and context.calls.is_revoked:
        return Returned("revoked")
    if isinstance(problem, DefiniteFailure):
        error = problem.error
        return Retry(error, problem.delay_seconds) if problem.may_retry else Failed(error)
    if isinstance(problem, NotPlainJsonError):
        return Failed(StepError("not_plain_json", "code", str(problem)))
    context.log_text("error", trace(problem))
    # Before it is cut, or half of a secret could be left.
    text = context.secrets.redact(described(problem))
    return Retry(StepError("exception", "code", text[:MAX_ERROR_TEXT]))


def _checked(outcome: Outcome, context: StepContext, *, is_large: bool) -> Outcome:
    """Hold an output against its bounds and its schema."""
    if not isinstance(outcome, Succeeded):
        return outcome
    schema = context.claimed.step.output_schema
    limits = context.services.limits
    if is_large and surely_exceeds(outcome.output, limits.output_bytes):
        # Found without writing it, which would hold the interpreter for as long as it is large.
        return Failed(far_too_large(outcome.output, limits.output_bytes), outcome.idempotency_key)
    output = context.secrets.redact_value(outcome.output)
    error, text = check(output, schema, limits.output_bytes)
    if error is not None:
        return Failed(error, outcome.idempotency_key)
    outcome.output, outcome.text = output, text
    outcome.large = large(text, limits.inline_bytes)
    return outcome


def _without_secrets(outcome: Outcome, secrets: Secrets) -> Outcome:
    """Take secrets out of the message of whatever error an attempt ends in."""
    if isinstance(outcome, Failed | Retry):
        message = secrets.redact(outcome.error.message)[:_MAX_MESSAGE]
        return replace(outcome, error=replace(outcome.error, message=message))
    return outcome


def _may_find_out(claimed: AttemptInput) -> bool:
    """Whether an attempt beyond the last has anything to learn: results that are on record."""
    if claimed.attempt > claimed.max_attempts + FIND_OUT_ATTEMPTS:
        return False
    return any(call.status != CallStatus.FAILED or replay.is_final(call) for call in claimed.calls)


def _may_park(claimed: AttemptInput) -> bool:
    """Whether an attempt beyond the last does nothing outside: it waits, asks or tells its items."""
    if claimed.attempt > claimed.max_attempts + PARKING_ATTEMPTS:
        return False
    kind = KINDS.get(claimed.step.kind)
    has_gate = claimed.step.approval is not None
    return claimed.is_group or has_gate or (kind is not None and not kind.acts)


def _internal(problem: BaseException, secrets: Secrets) -> StepError:
    # Before it is cut, or half of a secret could be left.
    text = secrets.redact(trace(problem))
    return StepError("internal", "internal", f"a defect of the engine: {text[-4000:]}")
