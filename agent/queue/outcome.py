"""The outcome of a step, from the end of its handler."""

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from agent.core.logs.tracebacks import user_traceback
from agent.queue.errors import Final as FinalFailure
from agent.queue.errors import HandlerEnd, LeaseLostError, Retry
from agent.queue.lease import Document, Lease, storable
from agent.queue.work import Parked

_MAX_MESSAGE: Final = 4000
_CODE: Final = re.compile("[a-z][a-z0-9_]{0,63}")


@dataclass(frozen=True, slots=True)
class Outcome:
    """A request that ends a lease."""

    verb: str
    document: Document


@dataclass(frozen=True, slots=True)
class Result:
    """An output with a context snapshot, for handlers that return both.

    Both are recorded in one transaction.
    """

    output: Any
    snapshot: Any
    label: str | None = None


def outcome_of(lease: Lease, call: Callable[[], Any]) -> Outcome:
    """Run a handler and return the outcome to report."""
    try:
        return _completed(call())
    except Parked as parked:
        return Outcome(parked.verb, parked.document)
    except (HandlerEnd, LeaseLostError, asyncio.CancelledError) as error:
        if (reason := lease.stop_reason) is not None:
            return Outcome("release", {"reason": reason})
        return _failed(lease, error)
    except FinalFailure as error:
        return _failure(str(error), error.code, is_retryable=False)
    except Retry as error:
        return _failure(str(error), error.code, delay=error.after_seconds)
    except BaseException as error:
        # SystemExit too: a handler ends its own step and nothing else.
        return _failed(lease, error)


def bad_output(reason: str) -> Outcome:
    """Return the failure of a step whose output the agent does not take; another attempt has the same."""
    return _failure(f"the output was refused: {reason}", "bad_output", is_retryable=False)


def _completed(output: Any) -> Outcome:
    if not isinstance(output, Result):
        return Outcome("complete", {"output": output})
    snapshot = {"value": output.snapshot, "label": output.label}
    return Outcome("complete", {"output": output.output, "snapshot": snapshot})


def _failed(lease: Lease, error: BaseException) -> Outcome:
    lease.log(storable(user_traceback(error)), "stderr")
    try:
        text = f"{type(error).__name__}: {error}".rstrip(": ")
    except BaseException:
        text = type(error).__name__
    return _failure(text, "exception")


def _failure(
    message: str, code: str, *, is_retryable: bool = True, delay: float | None = None
) -> Outcome:
    return Outcome(
        "fail",
        {
            "message": storable(message[:_MAX_MESSAGE]) or "failed",
            "code": code if _CODE.fullmatch(code) else "failed",
            "retryable": is_retryable,
            "delay": delay,
        },
    )
