"""The exceptions with which a step's code and its calls report failures."""

from dataclasses import dataclass

from agent.core.files import file_descriptors
from agent.core.plain_json import Json
from agent.steps.types.call_records import Spend
from agent.steps.types.outcome import Outcome, Returned, StepError


class DefiniteFailure(Exception):  # noqa: N818 - a verdict on the effect, read as a statement
    """The effect certainly did not happen.

    Raised inside a journaled call it resolves the call as failed. Raised anywhere in a step it ends
    the attempt; the step is retried unless `may_retry` is false.
    """

    def __init__(
        self,
        message: str,
        *,
        code: str = "failed",
        kind: str = "remote",
        may_retry: bool = True,
        delay_seconds: float | None = None,
        spend: Spend | None = None,
    ) -> None:
        super().__init__(message)
        self.error = StepError(code, kind, message)
        self.may_retry = may_retry
        self.delay_seconds = delay_seconds
        self.spend = spend
        """The use of a call of a model in spite of the failure; None when that is unknown."""


class OutOfDescriptorsError(DefiniteFailure):
    """Nothing began, because this process has no file descriptor left."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what}: too many open files in this process",
            code="no_descriptors",
            kind="limit",
            delay_seconds=file_descriptors.RETRY_SECONDS,
        )
        file_descriptors.report_exhaustion(what)

    def outcome(self) -> Returned:
        """Return the attempt, to be made again later; only for attempts whose calls have not begun."""
        return Returned("no_descriptors", file_descriptors.RETRY_SECONDS)


class UnknownOutcomeError(Exception):
    """A call began, and whether it took effect is unknown; any other exception means the same."""

    def __init__(self, error: StepError, delay_seconds: float | None = None) -> None:
        super().__init__(error.message)
        self.error = error
        self.delay_seconds = delay_seconds


class EndCallError(Exception):
    """Ends the attempt of a call that an executor runs elsewhere, with this outcome.

    Without an error the call goes on, and a later attempt finds it again.
    """

    def __init__(self, outcome: Outcome, error: StepError | None = None) -> None:
        super().__init__("the attempt ends")
        self.outcome = outcome
        self.error = error


class EndAttempt(BaseException):
    """Ends the attempt with an outcome that is already decided.

    Not an `Exception`, so that a step's own `except Exception` does not swallow it.
    """

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(type(outcome).__name__)
        self.outcome = outcome


@dataclass(frozen=True, slots=True)
class Applied:
    """What a reconcile function returns when the effect did happen, with the call's response.

    Returning False means that it certainly did not happen, None that the function cannot tell.
    """

    response: Json = None
