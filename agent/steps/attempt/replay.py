"""What the record says of a call that a step is about to make.

Only what may have happened binds a later attempt. A success gives its answer, and a final failure is
raised again: neither is sent a second time. A failure that allows a retry leaves the next request
free. An unknown call whose request has changed is for a person to decide.
"""

from dataclasses import dataclass
from typing import Final

from agent.core.state_machine import CallStatus
from agent.steps.types.call_records import RecordedCall
from agent.steps.types.call_types import Request
from agent.steps.types.errors import DefiniteFailure
from agent.steps.types.outcome import StepError

BAD_RESPONSE: Final = "bad_response"
"""The error of a call that succeeded with an answer that cannot be stored."""

REQUEST_CHANGED: Final = "request_changed"
"""The error of a call that a person resolved as done after its step had changed the request."""


@dataclass(frozen=True, slots=True)
class RecordMatch:
    """The recorded call that decides what becomes of the next one."""

    call: RecordedCall
    is_same: bool
    """Whether its answer is good for what the step asks for now."""


def is_final(call: RecordedCall) -> bool:
    """Whether a call failed for good."""
    return (
        call.status == CallStatus.FAILED
        and call.error is not None
        and call.error.get("final") is True
    )


def last_unknown(past: list[RecordedCall], action: str, body_hash: str) -> RecordedCall | None:
    """Return the latest unknown call with this very request."""
    return next(
        (
            call
            for call in reversed(past)
            if call.status == CallStatus.UNKNOWN and _is_same(call, action, body_hash)
        ),
        None,
    )


def find(
    calls: list[RecordedCall],
    number: int,
    request: Request,
    action: str,
    body_hash: str,
    attempt: int,
) -> RecordMatch | None:
    """Return what decides call `number` of an attempt; None when the call is free to be made."""
    past = [call for call in calls if call.number == number]
    done, unknown = (
        [call for call in past if call.status == status]
        for status in (CallStatus.SUCCEEDED, CallStatus.UNKNOWN)
    )
    if _may_change(request, number, calls):
        done, unknown = (
            [call for call in found if _is_same(call, action, body_hash)]
            for found in (done, unknown)
        )
    if done:
        usable = [call for call in done if _answers(call, request, action, body_hash)]
        return RecordMatch(usable[-1], True) if usable else RecordMatch(done[-1], False)
    failed = [call for call in past if call.status == CallStatus.FAILED and call.action == action]
    for call in failed:
        # One of this very attempt was seen before it waited, was paused or was returned.
        if is_final(call) or call.attempt == attempt:
            return RecordMatch(call, True)
    for call in unknown:
        if not _is_same(call, action, body_hash):
            return RecordMatch(call, False)
    return RecordMatch(unknown[-1], True) if unknown else None


def failure_of(call: RecordedCall) -> DefiniteFailure:
    """Return the failure of a recorded call as it was raised first."""
    error = error_of(call)
    return DefiniteFailure(
        error.message, code=error.code, kind=error.kind, may_retry=not error.is_final
    )


def error_of(call: RecordedCall) -> StepError:
    """Return the recorded error of a call."""
    return StepError.read(call.error or {})


def _is_same(call: RecordedCall, action: str, body_hash: str) -> bool:
    return call.action == action and call.request_hash == body_hash


def _answers(call: RecordedCall, request: Request, action: str, body_hash: str) -> bool:
    """Whether a recorded success is the answer to what is asked for now."""
    if _is_same(call, action, body_hash):
        return True
    # The answer of the step's only call is the step's outcome, however the request reads now: the
    # attempt that got it was lost. An inherited one belongs to another task's rendering.
    if request.settles_step and call.attempt > 0:
        return True
    return call.error is not None and call.error.get("code") == REQUEST_CHANGED


def _may_change(request: Request, number: int, calls: list[RecordedCall]) -> bool:
    """Whether an earlier answer to another request may be ignored: to ask again has no effect.

    Not if later calls on record followed from that answer.
    """
    if request.is_effect or request.on_unknown != "retry":
        return False
    return not request.leads or all(
        call.number <= number or call.status == CallStatus.FAILED for call in calls
    )
