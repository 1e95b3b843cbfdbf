"""Functions that handle work, by the queue that they take it from."""

import inspect
import re
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

from agent.core.scopes import QUEUE_PATTERN

Handler = Callable[..., Any]
_Decorated = TypeVar("_Decorated", bound=Handler)

_QUEUES: Final = "__agent_queues__"
_decorated: Final[list[Handler]] = []
"""Every function that `handler` has decorated in this process, in order."""


def handler(*queues: str) -> Callable[[_Decorated], _Decorated]:
    """Let a function, or a coroutine function, handle the work of these queues.

    It gets a `Work` (an `AsyncWork` if it is a coroutine function) and returns the step's output.
    """
    if not queues or not all(isinstance(queue, str) and queue for queue in queues):
        raise TypeError("name the queue, as in @handler('reviews')")
    for queue in queues:
        if re.search(QUEUE_PATTERN, queue) is None:
            allowed = "lower-case letters, digits, '_', '.' and '-', a letter or digit first"
            raise ValueError(f"{queue!r} is no queue's name: use {allowed}")

    def decorate(function: _Decorated) -> _Decorated:
        setattr(function, _QUEUES, queues)
        _decorated.append(function)
        return function

    return decorate


def by_queue(functions: Iterable[Handler]) -> dict[str, Handler]:
    """Return the function for each queue; without functions, all that are decorated."""
    by_queue: dict[str, Handler] = {}
    for function in list(functions) or _decorated:
        queues = getattr(function, _QUEUES, ())
        if not queues:
            raise TypeError(
                f"{name_of(function)} is not a handler: decorate it with @handler('queue')"
            )
        for queue in queues:
            if by_queue.setdefault(queue, function) is not function:
                both = f"{name_of(by_queue[queue])} and {name_of(function)}"
                raise TypeError(f"two handlers for the queue {queue!r}: {both}")
    if not by_queue:
        raise TypeError("no handlers: decorate a function with @handler('queue')")
    return by_queue


def name_of(function: Handler) -> str:
    """Return a function's name, for messages."""
    return getattr(function, "__qualname__", repr(function))


def is_async(function: Handler) -> bool:
    """Whether a handler is a coroutine function, or an object that is called as one."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - the method itself is inspected
    )
