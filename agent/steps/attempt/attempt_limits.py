"""The number of a step's attempts, and the rules for attempts beyond the last one."""

from typing import Final

from agent.core.state_machine import CallStatus
from agent.steps.attempt.recorded_calls import replay
from agent.steps.spec.registry import KINDS
from agent.steps.types.attempt_input import AttemptInput
from agent.steps.types.call_records import RecordedCall
from agent.steps.types.outcome import StepError, exhausted

RECORDED_RESULT_ATTEMPTS: Final = 3
"""How many attempts after the last one may use the recorded results of the step's calls.

Bounded, because each of them runs the step's code, which may crash its worker each time.
"""

JOB_EXECUTORS: Final = ("job", "ray", "dask")
"""The executors whose jobs outlive the agent; the call of a job has the executor's name."""

PARKING_ATTEMPTS: Final = 20
"""How often an attempt that only waits or asks may be lost beyond the step's attempts.

`max_attempts` is for attempts that act: a machine that crashed a few times must not end a wait of a
month. Bounded, because templates run in the worker and may be what crashes it.
"""


def may_use_recorded_results(attempt_input: AttemptInput) -> bool:
    """Whether an attempt beyond the last has recorded results to use."""
    most = RECORDED_RESULT_ATTEMPTS
    if any(_is_found_elsewhere(call) for call in attempt_input.calls):
        most = PARKING_ATTEMPTS
    if attempt_input.attempt > attempt_input.max_attempts + most:
        return False
    return any(
        call.status != CallStatus.FAILED or replay.is_final(call) for call in attempt_input.calls
    )


def _is_found_elsewhere(call: RecordedCall) -> bool:
    """Whether a call may still run as a job: to find it runs none of the step's code here."""
    return call.status == CallStatus.UNKNOWN and call.action.partition("#")[0] in JOB_EXECUTORS


def may_park(attempt_input: AttemptInput) -> bool:
    """Whether an attempt beyond the last has no effect: it waits, asks, or decides its items."""
    if attempt_input.attempt > attempt_input.max_attempts + PARKING_ATTEMPTS:
        return False
    kind = KINDS.get(attempt_input.step.kind)
    has_gate = attempt_input.step.approval is not None
    return attempt_input.is_group or has_gate or (kind is not None and not kind.acts)


def attempts_exhausted_error(attempt_input: AttemptInput) -> StepError:
    """Return the error of a step that has no attempt left."""
    error = attempt_input.last_error or {}
    last = f"; {error['message']}" if error.get("class") == "crash" else ""
    if any(call.status == CallStatus.UNKNOWN for call in attempt_input.calls):
        text = f"{exhausted(attempt_input.attempt - 1)}, outcome unknown{last}"
        return StepError("attempts_exhausted", "unknown", text)
    text = f"{exhausted(attempt_input.attempt - 1)}{last}"
    return StepError("attempts_exhausted", "crash", text)
