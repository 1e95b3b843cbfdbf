"""Decides the outcome of an attempt: one list of rules, and the check of the output.

`decide` is the place where an attempt's outcome is decided. `HandlerEnd` is what happened; the rules
turn it into a value that the engine applies.
"""

import asyncio
from dataclasses import dataclass, replace
from typing import Final

from agent.core.logs.tracebacks import user_traceback
from agent.steps.attempt.cancel_scope import complete
from agent.steps.attempt.containment import MAX_ERROR_TEXT, RelayedError, describe_exception
from agent.steps.attempt.context import StepContext
from agent.steps.attempt.time_limit import TimeLimit
from agent.steps.spec.output_checks import check_output, large_text, oversize_error
from agent.steps.types.attempt_input import RevokedError
from agent.steps.types.errors import DefiniteFailure, EndAttempt
from agent.steps.types.outcome import Failed, Outcome, Retry, Returned, StepError, Succeeded
from agent.steps.types.value_sizes import is_small, surely_exceeds
from agent.store.db.json_values import NotPlainJsonError

SHUTDOWN: Final = "shutdown"
DECLARED_DEAD: Final = "this worker was declared dead"
"""The reason for stopping an attempt whose step another worker has: effects are that worker's now."""
"""The stop reason that lets calls in flight finish."""


@dataclass(slots=True)
class HandlerEnd:
    """How the handler of a kind ended: it returned an outcome, raised, or was interrupted."""

    outcome: Outcome | None = None
    error: BaseException | None = None
    is_interrupted: bool = False
    """Whether the time limit or the engine ended it early; it may have returned all the same."""
    is_shut_down: bool = False
    """Whether the worker cancelled it at a point where nothing is unknown."""


async def decide(end: HandlerEnd, context: StepContext, limit: TimeLimit) -> Outcome:
    """Return the attempt's outcome: the first rule that applies.

    1. The worker shut down and cancelled the attempt: it is returned, and made again.
    2. A call has decided the outcome: nothing that the step did afterwards changes it.
    3. The attempt was interrupted before its result was known: it is returned, retried or failed.
    4. The step's code raised.
    5. The step's code returned: its output is checked.
    """
    if end.is_shut_down:
        return Returned(SHUTDOWN)
    if context.calls.decided_outcome is not None:
        return context.calls.decided_outcome
    if end.is_interrupted and not _is_result_known(end, context):
        return _interrupted(context, limit)
    if end.error is not None:
        return _classify(end.error, context)
    outcome = end.outcome
    assert outcome is not None
    if not isinstance(outcome, Succeeded):
        return outcome
    if is_small(outcome.output):
        return _check(outcome, context, is_large=False)
    return await _check_in_thread(outcome, context)


def thread_remark(name: str) -> str:
    """Say that a function goes on after its attempt's time."""
    return (
        f"{name} still runs in its thread, which keeps a slot until it returns"
        " (`executor: process` would end it)"
    )


def outcome_so_far(context: StepContext, limit: TimeLimit) -> Outcome:
    """Return the outcome of an interrupted attempt whose thread still runs."""
    outcome = _interrupted(context, limit)
    if not isinstance(outcome, Failed | Retry):
        return outcome
    remark = thread_remark(code_name(context))
    error = replace(outcome.error, message=f"{outcome.error.message}; {remark}")
    if isinstance(outcome, Failed):
        return Failed(error)
    # A call of the thread may still have its effect.
    return Retry(error, is_unknown=context.calls.in_flight > 0)


def code_name(context: StepContext) -> str:
    """Name the code of a step, for errors."""
    step = context.attempt_input.step
    call = step.config.get("call") if step.kind == "python" else None
    return call if isinstance(call, str) else f"the {step.kind} step {step.name!r}"


def _is_result_known(end: HandlerEnd, context: StepContext) -> bool:
    """Whether the step succeeded although it was interrupted.

    After its time only a recorded call counts: it cannot be made again.
    """
    if not isinstance(end.outcome, Succeeded):
        return False
    return context.signals.is_stopping or end.outcome.idempotency_key is not None


def _interrupted(context: StepContext, limit: TimeLimit) -> Outcome:
    if context.signals.is_stopping:
        return Returned(context.signals.stop_reason or "stopped")
    error = limit.error(context.attempt_input)
    if context.runs_elsewhere:
        error = replace(error, message=f"execution timeout: {error.message}")
    return Failed(error) if limit.step_error is not None else Retry(error)


def _classify(exception: BaseException, context: StepContext) -> Outcome:
    """Turn an exception of the step's code into an outcome."""
    if isinstance(exception, EndAttempt):
        return exception.outcome
    # A step can also use the context of another attempt, which is revoked too. Returning that would
    # cost no attempt, and the step would be made again at once, without end.
    if isinstance(exception, RevokedError) and context.calls.is_revoked:
        return Returned("revoked")
    if isinstance(exception, DefiniteFailure):
        error = exception.error
        return Retry(error, exception.delay_seconds) if exception.may_retry else Failed(error)
    if isinstance(exception, NotPlainJsonError):
        return Failed(StepError("not_plain_json", "code", str(exception)))
    context.log_text("error", _traceback(exception))
    # Redacted before it is cut, or half of a secret could be left.
    text = context.secrets.redact(describe_exception(exception))
    return Retry(StepError("exception", "code", text[:MAX_ERROR_TEXT]))


def _traceback(error: BaseException) -> str:
    """Return the frames of the user's own code; another process has chosen those of its own."""
    if isinstance(error, RelayedError):
        return error.step_traceback or f"{error}\n"
    return user_traceback(error)


async def _check_in_thread(outcome: Succeeded, context: StepContext) -> Outcome:
    """Check a large output; also while the worker shuts down."""
    thread = asyncio.to_thread(_check, outcome, context, is_large=True)
    checked, _ = await complete(asyncio.ensure_future(thread))
    return checked


def _check(outcome: Succeeded, context: StepContext, *, is_large: bool) -> Outcome:
    """Check an output, whose own methods may raise; any thread may call this."""
    limits = context.services.limits
    try:
        if is_large and surely_exceeds(outcome.output, limits.output_bytes):
            # Without encoding it, which would hold the interpreter's lock for as long as it is large.
            error = oversize_error(outcome.output, limits.output_bytes)
            return Failed(error, outcome.idempotency_key)
        output = context.secrets.redact_value(outcome.output)
        schema = context.attempt_input.step.output_schema
        refusal, text = check_output(output, schema, limits.output_bytes)
        if refusal is not None:
            return Failed(refusal, outcome.idempotency_key)
        outcome.output, outcome.text = output, text
        outcome.large = large_text(text, limits.inline_bytes)
    except BaseException as raised:  # by a method of the value that the step's code returned
        return Failed(_unreadable(raised, context), outcome.idempotency_key)
    return outcome


def _unreadable(error: BaseException, context: StepContext) -> StepError:
    reason = describe_exception(error)
    text = f"what {code_name(context)} returned raised {reason} when it was read"
    return StepError("bad_output", "code", context.secrets.redact(text))
