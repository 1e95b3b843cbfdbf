"""One attempt, from its claim to its outcome. Entry point: `run`.

1. `prepare`: the condition, the items of a group, the rendered configuration, the approval gate.
2. Load the kind's code, which is no part of the attempt's time.
3. Call the kind's handler under the attempt's time limit.
4. `outcome_rules.decide`: the outcome.
5. `state_change`: the values that a success writes to `state`.

`run` always returns an outcome, with one exception: where the worker shuts down in the middle of an effect,
`CancelledError` leaves it. An effect that may have happened without a recorded result is always unknown,
never a success or a failure.
"""

import asyncio
import contextlib
from collections.abc import Coroutine
from dataclasses import replace
from functools import partial
from typing import Any, Final

from pydantic import BaseModel

from agent.steps.attempt import prepare
from agent.steps.attempt.attempt_limits import (
    attempts_exhausted_error,
    may_park,
    may_use_recorded_results,
)
from agent.steps.attempt.cancel_scope import CancelScope, complete
from agent.steps.attempt.config_record import record_config, record_open_gate
from agent.steps.attempt.containment import (
    MAX_ERROR_TEXT,
    StepExitError,
    format_traceback,
    is_interruption,
)
from agent.steps.attempt.context import StepContext
from agent.steps.attempt.outcome_rules import (
    SHUTDOWN,
    HandlerEnd,
    code_name,
    decide,
    outcome_so_far,
    thread_remark,
)
from agent.steps.attempt.prepare import PreparedStep
from agent.steps.attempt.recorded_calls.calls import Calls
from agent.steps.attempt.secrets import Secrets, secret_watcher
from agent.steps.attempt.services import Services
from agent.steps.attempt.state_change import render_change
from agent.steps.attempt.time_limit import TimeLimit, is_out_of_time, out_of_time, time_limit_of
from agent.steps.spec.registry import Handler, Kind
from agent.steps.types.attempt_input import AttemptInput, Signals
from agent.steps.types.errors import DefiniteFailure, EndAttempt, OutOfDescriptorsError
from agent.steps.types.outcome import (
    Failed,
    Outcome,
    Retry,
    Returned,
    StepError,
    Succeeded,
    Waiting,
)
from agent.steps.types.value_sizes import is_small

LOAD_SECONDS: Final = 60.0
"""For importing libraries before the attempt's own time begins."""

_MAX_MESSAGE: Final = 2 * MAX_ERROR_TEXT


async def run(attempt_input: AttemptInput, signals: Signals, services: Services) -> Outcome:
    """Run one attempt of one step and return its outcome."""
    secrets = Secrets()
    try:
        prepare.watch_secrets(attempt_input.graph)
        secret_watcher.refresh()
        needs_thread = prepare.needs_thread(attempt_input)
    except Exception as error:
        return Failed(_internal(error, secrets))
    if secret_watcher.has_unread and not await _wait_unless_stopped(
        secret_watcher.read_unread(), signals
    ):
        return Returned(signals.stop_reason or SHUTDOWN)
    if needs_thread:
        try:
            prepared = await asyncio.to_thread(_prepare, attempt_input, services, secrets)
        except asyncio.CancelledError:
            return Returned(SHUTDOWN)
    else:
        prepared = _prepare(attempt_input, services, secrets)
    if not isinstance(prepared, tuple):
        return prepared
    step, config = prepared
    calls = Calls(attempt_input, services, secrets)
    context = StepContext(attempt_input, signals, services, secrets, calls)
    context.secret_paths = step.secret_paths
    try:
        return _redact_error(await _run_prepared(step, config, context), secrets)
    except Exception as error:
        return Failed(_internal(error, secrets))
    finally:
        signals.on_stop = None
        calls.on_idle = None
        calls.is_revoked = True


async def _run_prepared(step: PreparedStep, config: BaseModel, context: StepContext) -> Outcome:
    """Load the step's libraries, run it, and render its `set_state`."""
    attempt_input, signals, kind = context.attempt_input, context.signals, step.kind
    # Before any intent is recorded: a keyring may ask a person, and an effect must begin soon after its
    # intent (`send_window_seconds`).
    if step.secret_paths and not await _wait_unless_stopped(
        context.secrets.prefetch(attempt_input.step.config, step.secret_paths), signals
    ):
        return Returned(signals.stop_reason or SHUTDOWN)
    if (not kind.is_loaded or kind.ready is not None) and not await _load(kind, config, context):
        return Returned(SHUTDOWN)
    if kind.runs_code and (
        attempt_input.step.executor is not None or context.services.is_default_executor_remote
    ):
        outcome = await _run_by_executor(kind, config, context)
    else:
        outcome = await run_handler(kind.handler, config, context)
    if attempt_input.step.set_state and isinstance(outcome, Succeeded):
        outcome = await _with_state(outcome, context)
    return outcome


def _prepare(
    attempt_input: AttemptInput, services: Services, secrets: Secrets
) -> Outcome | tuple[PreparedStep, BaseModel]:
    """Return the step with its configuration, or the outcome where nothing runs.

    Any thread may call this.
    """
    try:
        may_continue = attempt_input.may_act or may_use_recorded_results(attempt_input)
        if not may_continue and not may_park(attempt_input):
            return Failed(attempts_exhausted_error(attempt_input))
        if not prepare.condition_holds(attempt_input):
            return Succeeded(skipped="if")
        if attempt_input.is_group:
            return prepare.items_of(attempt_input, services.limits.items_per_group)
        step = prepare.prepare_step(attempt_input.step)
        record = partial(record_config, attempt_input, services, secrets)
        if attempt_input.step.approval is None:
            return step, prepare.config_of(attempt_input, step, record)
        record_gate = partial(record_open_gate, attempt_input, services)
        config = prepare.approved_config(attempt_input, step, record, record_gate)
        if isinstance(config, Waiting):
            return config
        if not may_continue:
            return Failed(attempts_exhausted_error(attempt_input))
        return step, config
    except DefiniteFailure as error:
        return _redact_error(Failed(error.error), secrets)
    except BaseException as error:
        return Failed(_internal(error, secrets))


async def _wait_unless_stopped(work: Coroutine[Any, Any, None], signals: Signals) -> bool:
    """Wait until some work before the attempt is done; return False if the attempt should stop meanwhile.

    The work is cancelled then: a secret may wait for a person, and a process for its pool.
    """
    task = asyncio.ensure_future(work)

    def stop() -> None:
        task.cancel()

    signals.on_stop = stop
    try:
        if signals.is_stopping:
            task.cancel()
        await task
    except asyncio.CancelledError:
        return False
    finally:
        signals.on_stop = None
    return True


async def _load(kind: Kind, config: object, context: StepContext) -> bool:
    """Load the kind's code and libraries; return False if the worker shuts down meanwhile.

    Importing a kind may take a second or more. It happens in a thread, so other attempts go on.
    """
    try:
        # Errors are not handled here: the attempt loads the same again, within its own time limit, and
        # reports what fails.
        with contextlib.suppress(Exception):
            async with asyncio.timeout(LOAD_SECONDS):
                if not kind.is_loaded:
                    await asyncio.to_thread(getattr, kind, "handler")
                if kind.ready is not None:
                    await kind.ready(config, context)
    except asyncio.CancelledError:
        return False
    return True


async def _run_by_executor(kind: Kind, config: BaseModel, context: StepContext) -> Outcome:
    """Run the attempt by the executor that its step or the configuration names."""
    services, executor = context.services, context.attempt_input.step.executor
    try:
        if services.executors is None:
            message = "this process runs steps with `executor: local` only"
            raise DefiniteFailure(message, code="no_executor", kind="input", may_retry=False)
        execution = services.executors.open(kind.name, executor, services)
        if execution is None:
            return await run_handler(kind.handler, config, context)
        try:
            if not await _wait_unless_stopped(execution.ready(context), context.signals):
                return Returned(context.signals.stop_reason or SHUTDOWN)
            return await run_handler(execution.run, config, context)
        finally:
            execution.close()
    except OutOfDescriptorsError as error:
        return error.outcome()
    except DefiniteFailure as error:
        return Retry(error.error) if error.may_retry else Failed(error.error)


async def run_handler(handler: Handler, config: object, context: StepContext) -> Outcome:
    """Call the kind's handler within the attempt's time, and decide the outcome."""
    attempt_input, services = context.attempt_input, context.services
    if is_out_of_time(attempt_input, services.clock):
        return out_of_time(attempt_input, context.checkpoint)
    limit = time_limit_of(attempt_input, services)
    if limit.is_over:
        return Failed(limit.error(attempt_input))
    end = await _call_handler(handler, config, context, limit)
    return await decide(end, context, limit)


async def _call_handler(
    handler: Handler, config: object, context: StepContext, limit: TimeLimit
) -> HandlerEnd:
    """Call the handler and return how it ended.

    Raise `CancelledError` if the worker shuts down while an effect may be under way: the attempt
    then has no outcome, and another worker finds the call unknown.
    """
    end = HandlerEnd()
    scope = CancelScope(limit.seconds)
    try:
        with scope:
            _interrupt_on_stop(context, scope, limit)
            context.note_outlived = partial(_note_outlived, limit=limit)
            try:
                end.outcome = await handler(config, context)
            except (Exception, EndAttempt) as error:
                end.error = error
            except BaseException as error:
                if is_interruption(error):
                    raise
                end.error = StepExitError(code_name(context), error)
    except asyncio.CancelledError as error:
        is_stopping = context.signals.is_stopping
        if context.signals.has_runaway_thread or (is_stopping and context.calls.is_cut_off):
            raise
        end.is_shut_down = is_stopping
        # On a shutdown `is_shut_down` decides; otherwise the step's own code has cancelled the task.
        end.error = StepExitError(code_name(context), error)
    end.is_interrupted = scope.is_over()
    return end


async def _with_state(outcome: Succeeded, context: StepContext) -> Outcome:
    """Return a success with its changes of `state`; a large output is read in a thread."""
    if is_small(outcome.output):
        return _render_state(outcome, context)
    thread = asyncio.to_thread(_render_state, outcome, context)
    # The step has acted, so its outcome must not be lost: `complete` finishes the rendering even if the
    # worker cancels this attempt.
    rendered, _ = await complete(asyncio.ensure_future(thread))
    return rendered


def _render_state(outcome: Succeeded, context: StepContext) -> Outcome:
    try:
        change = render_change(context.attempt_input, outcome.output, context.secrets)
    except DefiniteFailure as error:
        return Failed(error.error, outcome.idempotency_key)
    return replace(outcome, state=change)


def _interrupt_on_stop(context: StepContext, scope: CancelScope, limit: TimeLimit) -> None:
    """Interrupt the attempt when the engine stops it. At a shutdown, calls in flight may end first."""
    # None of these refers to the context: a cycle would keep the attempt until the next collection.
    calls, signals, attempt_input = context.calls, context.signals, context.attempt_input

    def interrupt() -> None:
        if signals.stop_reason == SHUTDOWN and calls.in_flight > 0:
            calls.on_idle = interrupt
            return
        calls.on_idle = None
        calls.is_revoked = True
        scope.end_soon()

    def interruption() -> str | None:
        if signals.is_stopping:
            return f"stopped: {signals.stop_reason}"
        return f"timeout: {limit.error(attempt_input).message}" if scope.is_over() else None

    calls.interruption = interruption
    context.is_interrupted = scope.is_over
    signals.on_stop = interrupt
    if signals.is_stopping:
        interrupt()


def _note_outlived(context: StepContext, limit: TimeLimit) -> None:
    """Tell the engine and the step's log that the attempt is over, and its function is not."""
    signals = context.signals
    if signals.stop_reason == SHUTDOWN or signals.on_outlived is None:
        return
    context.log(thread_remark(code_name(context)))
    signals.on_outlived(outcome_so_far(context, limit), code_name(context))


def _redact_error(outcome: Outcome, secrets: Secrets) -> Outcome:
    """Take secrets out of the message of the error that an attempt ends with."""
    if isinstance(outcome, (Failed, Retry)):
        message = secrets.redact(outcome.error.message)[:_MAX_MESSAGE]
        return replace(outcome, error=replace(outcome.error, message=message))
    return outcome


def _internal(error: BaseException, secrets: Secrets) -> StepError:
    # Redacted before it is cut, or half of a secret could be left.
    text = secrets.redact(format_traceback(error))
    return StepError("internal", "internal", f"a defect of the engine: {text[-4000:]}")
