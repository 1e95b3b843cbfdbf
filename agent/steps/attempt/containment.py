"""Containment of exceptions: whatever a step's code raises ends its attempt and nothing else.

`except Exception` does not catch `SystemExit`, `KeyboardInterrupt`, `GeneratorExit` and
`CancelledError`. The event loop re-raises the first two out of `run_forever`, which would end the
process. A step's code may raise any of them, also from a method of its own exception or result.
Wherever the engine calls a step's code they become a `StepExitError`, an ordinary exception that
names the function.
"""

import asyncio
import traceback
from collections.abc import Callable
from typing import Any, Final

from agent.core import event_loop
from agent.steps.types.errors import EndAttempt

MAX_ERROR_TEXT: Final = 4000
"""The characters of an exception's text that an error keeps. Callers redact before they cut."""


class StepExitError(Exception):
    """A step's code raised an exception that is meant to end a process, a task or a generator."""

    def __init__(self, where: str, error: BaseException) -> None:
        super().__init__(f"{where} raised {_repr(error)}")


class RelayedError(StepExitError):
    """An exception of a step's code in another process, as that process described it."""

    def __init__(self, text: str, step_traceback: str = "") -> None:
        Exception.__init__(self, text)
        self.step_traceback = step_traceback


def call(where: str, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Any:
    """Call a step's function; `where` names it in the error."""
    try:
        return function(*arguments, **named)
    except (Exception, EndAttempt):
        raise
    except BaseException as error:
        raise StepExitError(where, error) from error


async def call_async(
    where: str, function: Callable[..., Any], /, *arguments: Any, **named: Any
) -> Any:
    """Call and await a step's coroutine function; `where` names it in the error."""
    try:
        with event_loop.StepCode():
            return await function(*arguments, **named)
    except (Exception, EndAttempt):
        raise
    except BaseException as error:
        if is_interruption(error):
            raise
        raise StepExitError(where, error) from error


def is_interruption(error: BaseException) -> bool:
    """Whether the engine or the interpreter interrupts the coroutine, not the step's code."""
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is not None and task.cancelling() > 0
    # A coroutine that is closed without having ended gets a GeneratorExit while no task runs it.
    return isinstance(error, GeneratorExit) and _is_outside_of_tasks()


def describe_exception(error: BaseException) -> str:
    """Return an exception's type and text, whatever its `__str__` does."""
    if isinstance(error, StepExitError):
        return error.args[0] if isinstance(error.args[0], str) else "StepExitError"
    try:
        text = f"{type(error).__name__}: {error}".rstrip(": ")
    except BaseException as failure:
        text = f"{type(error).__name__} (its __str__ raised {type(failure).__name__})"
    return text


def format_traceback(error: BaseException) -> str:
    """Return an exception's traceback as text, whatever its methods do."""
    try:
        return "".join(traceback.format_exception(error))
    except BaseException as failure:
        return f"{type(error).__name__}: no traceback ({type(failure).__name__})\n"


def _repr(error: BaseException) -> str:
    try:
        text = repr(error)
    except BaseException:
        text = type(error).__name__
    return text


def _is_outside_of_tasks() -> bool:
    try:
        return asyncio.current_task() is None
    except RuntimeError:
        return True
