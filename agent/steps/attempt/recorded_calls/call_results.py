"""The record of a call that has ended: its response or its error, without secrets."""

from agent.core.state_machine import CallStatus
from agent.steps.attempt import spans
from agent.steps.attempt.containment import MAX_ERROR_TEXT, describe_exception
from agent.steps.attempt.recorded_calls import replay
from agent.steps.attempt.secrets import Secrets
from agent.steps.attempt.services import Services
from agent.steps.spec.output_checks import large_text
from agent.steps.types.attempt_input import AttemptInput
from agent.steps.types.call_records import CallResult, Spend
from agent.steps.types.call_types import Call, EncodedResponse, Request
from agent.steps.types.outcome import Json, StepError
from agent.store.db.json_values import NotPlainJsonError, encode


class CallResults:
    """Writes the results of one attempt's calls to the journal, and to traces where there are any."""

    def __init__(self, attempt_input: AttemptInput, services: Services, secrets: Secrets) -> None:
        self._attempt_input = attempt_input
        self._services = services
        self._secrets = secrets
        self._traced: dict[str, Request] = {}
        """The requests of open calls, by the calls' ids, where there are traces."""

    def expect(self, call: Call, request: Request) -> None:
        """Keep the request of an open call for its span."""
        if self._services.spans is not None:
            self._traced[call.call_id] = request

    def encode_response(self, call: Call, response: Json) -> EncodedResponse | StepError:
        """Return a response as it is recorded, or why it cannot be; any thread may call this."""
        where = f"the response of {call.action}"
        try:
            response = self._secrets.redact_value(response)
            return EncodedResponse(response, encode(response, where))
        except BaseException as error:  # also a method of the response may raise
            # The call happened, whatever its response is: the ledger says so, and the step fails.
            is_deep = isinstance(error, RecursionError)
            reason = f"{where}: it is nested too deeply" if is_deep else describe_exception(error)
            if isinstance(error, NotPlainJsonError):
                reason = str(error)
            return self.redacted(StepError(replay.BAD_RESPONSE, "code", reason))

    def record(
        self,
        call: Call,
        status: CallStatus,
        response: EncodedResponse | None = None,
        error: StepError | None = None,
        spend: Spend | None = None,
    ) -> None:
        """Journal a result."""
        now = self._services.clock.monotonic()
        value, large = None, None
        if response is not None:
            value = response.value
            large = large_text(response.text, self._services.limits.inline_bytes)
        result = CallResult(
            call.call_id,
            call.idempotency_key,
            status,
            value,
            error,
            latency_ms=0 if call.sent_at is None else int((now - call.sent_at) * 1000),
            reservation=call.reservation,
            spend=spend if call.reservation is not None else None,
            large=large,
        )
        self._services.journal.resolve(self._attempt_input, result)
        self.trace(call, status, value, error, spend)

    def trace(
        self,
        call: Call,
        status: CallStatus,
        response: Json = None,
        error: StepError | None = None,
        spend: Spend | None = None,
    ) -> None:
        """Report the call's span, where there are traces."""
        request = self._traced.pop(call.call_id, None)
        if request is None:
            return
        now = self._services.clock.monotonic()
        seconds = 0.0 if call.sent_at is None else now - call.sent_at
        ended = spans.EndedCall(call, request, status, response, error, spend, seconds)
        url = self._secrets.redact(spans.url_of(request))
        spans.emit_call(self._attempt_input, self._services, ended, url)

    def redacted(self, error: StepError) -> StepError:
        """Return an error as it is recorded: without secrets, and not too long."""
        message = self._secrets.redact(error.message)[: 2 * MAX_ERROR_TEXT]
        return StepError(error.code, error.kind, message)
