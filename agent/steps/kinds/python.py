"""The `python` kind: coroutine functions run on the event loop, others in threads of their own."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from agent.steps.attempt import containment
from agent.steps.attempt.captured_output import captured
from agent.steps.attempt.context import StepContext
from agent.steps.attempt.thread_context import BlockingContext
from agent.steps.kinds.python_modules import Function, find, find_loaded
from agent.steps.spec.configs import PythonConfig
from agent.steps.types.attempt_input import RevokedError
from agent.steps.types.outcome import Json, Outcome, Succeeded

T = TypeVar("T")

HEED_SECONDS = 1.0
"""How long a function in a thread may take to notice that its attempt is over, as `ctx.should_stop` says."""


async def run(config: PythonConfig, context: StepContext) -> Outcome:
    """Call the function; as one journaled call with `effect: once`."""
    function = await load(config.call, context)
    function.check(config.call, frozenset(config.with_))
    if config.effect != "once":
        return Succeeded(await start(function, config.with_, context))
    request = context.request(
        "python", {"call": config.call, "with": config.with_}, on_unknown="ask"
    )
    answer = await context.perform(request, lambda _: start(function, config.with_, context))
    return Succeeded(answer.response, idempotency_key=answer.idempotency_key)


async def load(call: str, context: StepContext) -> Function:
    """Return the function that `module:function` names.

    A thread loads a module that is not loaded yet: its code may take long, or hang.
    """
    path = context.attempt_input.task.source_path
    loaded = find_loaded(call, path)
    if loaded is not None:
        return loaded

    def load_module() -> Function:
        with captured(context.log_text):
            function: Function = containment.call(call, find, call, path)
            return function

    function = await _in_thread(load_module, context)
    if context.is_interrupted():
        raise RevokedError(f"the attempt ended while {call} was loaded")
    return function


def start(function: Function, arguments: dict[str, Json], context: StepContext) -> Awaitable[Json]:
    """Start a function, on the event loop or in a thread of its own."""
    # A copy for the function: a configuration without templates is shared by many attempts.
    keywords: dict[str, Any] = _copy(arguments) if arguments else {}
    if function.is_async:
        if function.takes_context:
            keywords["ctx"] = context
        return _on_loop(function, keywords, context)
    if function.takes_context:
        keywords["ctx"] = BlockingContext(context)

    def call_function() -> Json:
        with captured(context.log_text):
            return containment.call(function.name, function.function, **keywords)

    return _in_thread(call_function, context)


async def _on_loop(function: Function, keywords: dict[str, Any], context: StepContext) -> Json:
    with captured(context.log_text):
        return await containment.call_async(function.name, function.function, **keywords)


async def _in_thread(function: Callable[[], T], context: StepContext) -> T:
    """Wait for a thread. After its time it loses its context, and keeps its slot until it ends.

    If it does not end soon, the engine ends the attempt meanwhile, where nothing can follow but the end
    of the step.
    """
    future = context.services.threads.start(function)
    try:
        in_time: T = await asyncio.shield(future)
        return in_time
    except asyncio.CancelledError:
        context.calls.is_revoked = True
        context.signals.has_runaway_thread = not future.done()
        if not context.is_interrupted():
            raise
        await asyncio.wait([future], timeout=HEED_SECONDS)
        if not future.done():
            context.note_outlived(context)
    result: T = await asyncio.shield(future)
    context.signals.has_runaway_thread = False
    return result


def _copy(value: Json) -> Json:
    if isinstance(value, dict):
        return {key: _copy(member) for key, member in value.items()}
    if isinstance(value, list):
        return [_copy(member) for member in value]
    return value
