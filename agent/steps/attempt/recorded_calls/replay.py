"""Which recorded call decides the next call of a step.

Only a call that may have happened binds a later attempt. A recorded success gives its response and a
final failure is raised again: neither is sent a second time. After a failure that allows a retry the
step may send anything. After an unknown call whose request has changed, a person decides.
"""

from dataclasses import dataclass, replace
from typing import Final

from agent.core.state_machine import CallStatus
from agent.steps.types.attempt_input import AttemptInput
from agent.steps.types.call_records import RecordedCall
from agent.steps.types.call_types import NumberedRequest, Request
from agent.steps.types.errors import DefiniteFailure
from agent.steps.types.outcome import StepError

BAD_RESPONSE: Final = "bad_response"
"""The error code of a call that succeeded with a response that cannot be stored."""

REQUEST_CHANGED: Final = "request_changed"
"""The error code of a call that a person resolved as done after its step had changed the request."""


@dataclass(frozen=True, slots=True)
class RecordMatch:
    """The recorded call that decides the next one."""

    call: RecordedCall
    is_usable: bool
    """Whether its result is valid for the request that the step makes now."""


def find_match(attempt_input: AttemptInput, numbered: NumberedRequest) -> RecordMatch | None:
    """Return the recorded call that decides a request; None when the call is free to be made."""
    past = _with_number(attempt_input, numbered.number)
    if not past:
        return None
    succeeded, unknown = (
        [call for call in past if call.status == status]
        for status in (CallStatus.SUCCEEDED, CallStatus.UNKNOWN)
    )
    if _may_change(numbered, attempt_input.calls):
        succeeded = [call for call in succeeded if numbered.matches(call)]
        # Not the unknown effect of an earlier definition, which a person must decide.
        unknown = [call for call in unknown if numbered.matches(call) or call.on_unknown != "retry"]
    if succeeded:
        usable = [call for call in succeeded if _answers(call, numbered)]
        return RecordMatch(usable[-1], True) if usable else RecordMatch(succeeded[-1], False)
    failed = [
        call for call in past if call.status == CallStatus.FAILED and call.action == numbered.action
    ]
    for call in failed:
        # This very attempt saw the second kind fail, before it waited, was paused or was returned.
        if is_final(call) or call.attempt == attempt_input.attempt:
            return RecordMatch(call, True)
    for call in unknown:
        if not numbered.matches(call):
            return RecordMatch(call, False)
    return RecordMatch(unknown[-1], True) if unknown else None


def last_unknown(attempt_input: AttemptInput, numbered: NumberedRequest) -> RecordedCall | None:
    """Return the latest unknown call with this very request."""
    for call in reversed(_with_number(attempt_input, numbered.number)):
        if call.status == CallStatus.UNKNOWN and numbered.matches(call):
            return call
    return None


def has_success(attempt_input: AttemptInput, number: int, action: str, body_hash: str) -> bool:
    """Whether this very request has a recorded success."""
    return any(
        call.status == CallStatus.SUCCEEDED
        and call.action == action
        and call.request_hash == body_hash
        for call in _with_number(attempt_input, number)
    )


def is_final(call: RecordedCall) -> bool:
    """Whether a call failed for good."""
    return (
        call.status == CallStatus.FAILED
        and call.error is not None
        and call.error.get("final") is True
    )


def failure_of(call: RecordedCall) -> DefiniteFailure:
    """Return the failure of a recorded call as it was raised first."""
    error = error_of(call)
    return DefiniteFailure(
        error.message, code=error.code, kind=error.kind, may_retry=not error.is_final
    )


def error_of(call: RecordedCall) -> StepError:
    """Return the recorded error of a call."""
    return StepError.read(call.error or {})


def changed_error(call: RecordedCall, action: str, attempt_input: AttemptInput) -> StepError:
    """Return the error of a step whose recorded response belongs to another request."""
    now = action if call.action != action else f"{action} with another request"
    text = (
        f"the step's calls have changed: call {call.number} was {call.action}, which succeeded, and"
        f" is now {now}. The recorded response is not used for it, and nothing is sent again."
    )
    return advise_fork(StepError("calls_changed", "input", text), attempt_input)


def advise_fork(error: StepError, attempt_input: AttemptInput) -> StepError:
    """Add the command to use where a retry would fail for the same reason."""
    command = f"fork {attempt_input.task.id[-8:]} --from {attempt_input.step.name}"
    advice = f"`agent {command}` runs the step from its beginning, with all its effects"
    return replace(error, message=f"{error.message} {advice}", command=command)


def _with_number(attempt_input: AttemptInput, number: int) -> list[RecordedCall]:
    return [call for call in attempt_input.calls if call.number == number]


def _answers(call: RecordedCall, numbered: NumberedRequest) -> bool:
    """Whether a recorded success answers the request that the step makes now."""
    if numbered.matches(call):
        return True
    # The response of the step's only call is the step's outcome, even if the request is rendered
    # differently now: the attempt that got it was lost. An inherited one is another task's.
    if numbered.request.settles_step and call.attempt > 0:
        return True
    return call.error is not None and call.error.get("code") == REQUEST_CHANGED


def _may_change(numbered: NumberedRequest, calls: list[RecordedCall]) -> bool:
    """Whether a recorded call with another request may be ignored: a repetition has no effect.

    Not if later calls on record followed from its response.
    """
    request: Request = numbered.request
    if request.is_effect or request.on_unknown != "retry":
        return False
    return not request.leads or all(
        call.number <= numbered.number or call.status == CallStatus.FAILED for call in calls
    )
