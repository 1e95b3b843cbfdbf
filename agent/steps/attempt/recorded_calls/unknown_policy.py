"""Applies the step's `on_unknown` to a call whose result was never recorded.

Such a call may have happened. Nothing is sent before the earlier send must be over (`expires_at`).
Then the policy applies:

- `fail`: the step fails.
- `reconcile`: the step's own check asks the remote. Where the check cannot tell, a person is asked.
- `ask`: a person is asked.
- `retry`: the same request is sent again, under the same key for the remote.

A call that an executor runs (`Request.lookup`) is looked for first: it may have ended well or badly since,
or may still be under way. The policy applies only where nothing can be known of it.

A definition that has become `retry` since the call was made (another version, or changed code) does not
cover it either: the call was made under the promise that a person or a check would decide. A person is asked.

A step that would now send another request is not covered by any of them but `fail`: the remote does
not know the key of a request that it never got. A person is asked.
"""

from dataclasses import replace

from agent.core.state_machine import CallStatus
from agent.core.waits import Timer, UnknownCall
from agent.steps.attempt.containment import MAX_ERROR_TEXT
from agent.steps.attempt.recorded_calls.replay import advise_fork
from agent.steps.attempt.secrets import Secrets
from agent.steps.attempt.services import Services
from agent.steps.types.attempt_input import AttemptInput
from agent.steps.types.call_records import CallResult, RecordedCall
from agent.steps.types.call_types import CallAnswer, Request
from agent.steps.types.errors import Applied, DefiniteFailure, EndCallError
from agent.steps.types.outcome import (
    Failed,
    Json,
    Outcome,
    StepError,
    Waiting,
    exhausted,
)


class UnknownPolicy:
    """Decides the next action of an attempt about one unknown call."""

    def __init__(
        self, attempt_input: AttemptInput, services: Services, secrets: Secrets, checkpoint: Json
    ) -> None:
        self._attempt_input = attempt_input
        self._services = services
        self._secrets = secrets
        self._checkpoint = checkpoint

    async def apply(
        self, call: RecordedCall, request: Request, changed_request: dict[str, Json] | None
    ) -> Outcome | CallAnswer | None:
        """Return the attempt's outcome, the call's answer, or None when the call is to be made.

        `changed_request` is the request that the step would send now, if it differs.
        """
        is_promised = call.on_unknown != "retry"
        policy = "ask" if is_promised and request.on_unknown == "retry" else request.on_unknown
        if request.lookup is not None and changed_request is None:
            lookup_result = await request.lookup(call)
            if lookup_result is not None:
                return self._resolve_found(call, lookup_result)
        elif self._services.clock.now() < call.expires_at and (request.is_effect or is_promised):
            next_policy = policy if changed_request is None or policy == "fail" else "ask"
            timer = Timer(call.expires_at, on_unknown=next_policy)
            return Waiting(timer, call.expires_at, self._checkpoint)
        if policy == "fail":
            text = (
                f"whether {call.action} happened is unknown, and `on_unknown: fail` fails the step."
                " A retry fails the same way."
            )
            error = StepError("unknown_outcome", "unknown", text)
            return Failed(advise_fork(error, self._attempt_input))
        if changed_request is not None:
            return Waiting(UnknownCall(call.call_id), None, self._checkpoint, changed_request)
        if policy == "reconcile" and request.reconcile is not None:
            verdict = await request.reconcile(call)
            if isinstance(verdict, Applied) or verdict is True:
                return self._resolve_applied(call, verdict)
            if verdict is False:
                return self._resolve_not_applied(call)
        if policy in ("ask", "reconcile"):
            return Waiting(UnknownCall(call.call_id), None, self._checkpoint)
        return None

    def _resolve_found(
        self, call: RecordedCall, lookup_result: Applied | DefiniteFailure | EndCallError
    ) -> Outcome | CallAnswer:
        """Record the result of a call that an executor ran; raise its failure."""
        if isinstance(lookup_result, Applied):
            return self._resolve_applied(call, lookup_result)
        if isinstance(lookup_result, EndCallError):
            if lookup_result.error is not None:
                self._resolve(call, CallStatus.FAILED, error=lookup_result.error)
            return lookup_result.outcome
        message = self._secrets.redact(lookup_result.error.message)[: 2 * MAX_ERROR_TEXT]
        error = replace(lookup_result.error, message=message, is_final=not lookup_result.may_retry)
        self._resolve(call, CallStatus.FAILED, error=error)
        raise lookup_result

    def _resolve_applied(self, call: RecordedCall, verdict: Applied | bool) -> CallAnswer:
        response = verdict.response if isinstance(verdict, Applied) else None
        response = self._secrets.redact_value(response)
        self._resolve(call, CallStatus.SUCCEEDED, response=response)
        return CallAnswer(response, call.idempotency_key)

    def _resolve_not_applied(self, call: RecordedCall) -> Outcome | None:
        error = StepError("not_applied", "remote", f"{call.action} did not happen")
        self._resolve(call, CallStatus.FAILED, error=error)
        if self._attempt_input.may_act:
            return None
        text = f"{exhausted(self._attempt_input.max_attempts)}; {call.action} did not happen"
        return Failed(StepError("attempts_exhausted", "remote", text))

    def _resolve(
        self,
        call: RecordedCall,
        status: CallStatus,
        response: Json = None,
        error: StepError | None = None,
    ) -> None:
        result = CallResult(
            call.call_id,
            call.idempotency_key,
            status,
            response,
            error,
            is_resolved_by_check=True,
        )
        self._services.journal.resolve(self._attempt_input, result)
