"""How long an attempt may take: the step's timeout, the task's deadline, the step's time budget."""

from dataclasses import dataclass
from typing import Final

from agent.core.clock import SECOND, Clock
from agent.steps.attempt.services import Services
from agent.steps.spec.registry import KINDS
from agent.steps.types.attempt_input import AttemptInput
from agent.steps.types.outcome import Json, Paused, StepError

_TASK_OVER: Final = StepError("deadline", "timeout", "the task's time was over")
_STEP_OVER: Final = StepError("budget_exhausted", "timeout", "the step's time was over")


@dataclass(slots=True, eq=False)
class TimeLimit:
    """The time of one attempt."""

    seconds: float | None
    """None when the attempt may take any time."""
    step_error: StepError | None
    """The error that fails the step when this time is over; None when another attempt may follow."""

    @property
    def is_over(self) -> bool:
        """Whether there is no time left to begin."""
        return self.seconds is not None and self.seconds <= 0

    def error(self, attempt_input: AttemptInput) -> StepError:
        """Return the error of an attempt that this limit ended."""
        if self.step_error is not None:
            return self.step_error
        text = f"the attempt took longer than {self.seconds:g} s"
        if attempt_input.step.timeout_seconds is None:
            text += " ([steps] attempt_seconds; set timeout: on the step)"
        return StepError("timeout", "timeout", text)


def time_limit_of(attempt_input: AttemptInput, services: Services) -> TimeLimit:
    """Return the time of an attempt: the shortest that applies."""
    seconds, step_error = attempt_input.step.timeout_seconds, None
    if seconds is None:
        seconds = _default_seconds(attempt_input, services)
    step_deadline = attempt_input.deadline
    if step_deadline is not None and attempt_input.pauses_when_time_is_over:
        step_deadline = None
    for deadline, error in ((attempt_input.task.deadline, _TASK_OVER), (step_deadline, _STEP_OVER)):
        if deadline is None:
            continue
        left_seconds = (deadline - services.clock.now()) / SECOND
        if seconds is None or left_seconds < seconds:
            seconds, step_error = left_seconds, error
    return TimeLimit(seconds, step_error)


def _default_seconds(attempt_input: AttemptInput, services: Services) -> float | None:
    """Return the limit of an attempt whose workflow sets none at all."""
    step, kind = attempt_input.step, KINDS.get(attempt_input.step.kind)
    if step.has_no_timeout or kind is None or not kind.runs_code:
        return None
    seconds = services.limits.attempt_seconds
    if attempt_input.task.deadline is not None:
        return None
    if attempt_input.graph.timeout_seconds is not None:
        # The end of this time pauses the task, which ends no attempt.
        seconds = max(seconds, attempt_input.graph.timeout_seconds)
    if attempt_input.deadline is not None:
        if not attempt_input.pauses_when_time_is_over:
            return None
        seconds = max(seconds, (attempt_input.deadline - services.clock.now()) / SECOND)
    return seconds


def is_out_of_time(attempt_input: AttemptInput, clock: Clock) -> bool:
    """Whether the step's time budget is over and pauses its task; calls in flight may finish."""
    deadline = attempt_input.deadline
    if deadline is None or not attempt_input.pauses_when_time_is_over:
        return False
    return clock.now() >= deadline


def out_of_time(attempt_input: AttemptInput, checkpoint: Json) -> Paused:
    """Return the outcome that pauses the task because the step's time budget is over."""
    name = attempt_input.step.name
    command = f"budget {attempt_input.task.id[-8:]} --step {name} --time D"
    reason = f"the time of step {name!r} is over; `agent {command}` raises it"
    return Paused(checkpoint, reason, command)
