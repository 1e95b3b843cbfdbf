"""The functions that a step gives to its calls: they may take the call or not, and be coroutines or not."""

import inspect
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from agent.steps.attempt import containment


def bind_call(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that takes the call, whether the given one does or not."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return lambda _: function()
    takes_call = any(
        parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        and parameter.default is parameter.empty
        for parameter in parameters
    )
    return function if takes_call else lambda _: function()


def as_coroutine(name: str, function: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    """Return a coroutine function for a function of a call; its exceptions end its attempt only."""

    async def awaited(call: Any) -> Any:
        result = bind_call(function)(call)
        return await result if inspect.isawaitable(result) else result

    return partial(containment.call_async, name, awaited)
