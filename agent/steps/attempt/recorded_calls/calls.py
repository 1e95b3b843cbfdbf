"""The journaled calls of one attempt: an effect begins only after its intent is durable.

Calls are numbered by their order in the attempt. `replay` finds the recorded call that decides the
next one; `unknown_policy` decides about a call whose result was never recorded. Every other call is
made: `open` records its intent, `check_may_begin` is the last check before the first byte, and
`record_success` or `record_failure` records its result, in the form of `call_results`.
"""

from asyncio import CancelledError, to_thread
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final, NoReturn

from agent.core import ids
from agent.core.clock import SECOND
from agent.core.files import file_descriptors
from agent.core.state_machine import CallStatus
from agent.core.waits import Timer
from agent.steps.attempt.approval_gate import own_checkpoint
from agent.steps.attempt.attempt_limits import attempts_exhausted_error
from agent.steps.attempt.containment import describe_exception
from agent.steps.attempt.recorded_calls import replay
from agent.steps.attempt.recorded_calls.call_results import CallResults
from agent.steps.attempt.recorded_calls.intents import StoredBody, new_intent
from agent.steps.attempt.recorded_calls.unknown_policy import UnknownPolicy
from agent.steps.attempt.secrets import Secrets
from agent.steps.attempt.services import Services
from agent.steps.attempt.time_limit import is_out_of_time, out_of_time
from agent.steps.spec.output_checks import large_text
from agent.steps.types.attempt_input import AttemptInput, BudgetRefusedError, RevokedError
from agent.steps.types.call_records import Intent, Spend
from agent.steps.types.call_types import (
    Call,
    CallAnswer,
    EncodedResponse,
    NumberedRequest,
    Process,
    Request,
)
from agent.steps.types.errors import (
    DefiniteFailure,
    EndAttempt,
    EndCallError,
    OutOfDescriptorsError,
    UnknownOutcomeError,
)
from agent.steps.types.outcome import (
    Failed,
    Json,
    Outcome,
    Paused,
    Retry,
    StepError,
    Waiting,
)
from agent.steps.types.snapshot import SnapshotOperation
from agent.steps.types.state_values import StateOperation
from agent.steps.types.value_sizes import is_small
from agent.store.db.json_values import NotPlainJsonError, encode

Prepare = Callable[[], Awaitable[Process | None]]
"""Starts the process of a call, which waits until the intent is durable."""

_STORE_RETRY_SECONDS: Final = 15
"""The delay before a step tries a store again."""


class Calls:
    """The calls of one attempt. Methods belong to the event loop's thread unless they say otherwise."""

    def __init__(self, attempt_input: AttemptInput, services: Services, secrets: Secrets) -> None:
        self._attempt_input = attempt_input
        self._services = services
        self._secrets = secrets
        self._count = 0
        self.in_flight = 0
        self.is_revoked = False
        """Whether the attempt may begin no more calls: it is over, or its claim is gone."""
        self.is_cut_off = False
        """Whether a call was cancelled after it had begun."""
        self.checkpoint: Json = own_checkpoint(attempt_input)
        self.decided_outcome: Outcome | None = None
        """The outcome that a call has decided; nothing the step does afterwards changes it."""
        self.interruption: Callable[[], str | None] = lambda: None
        """Returns why the attempt was interrupted, if it was: by its time limit or by the engine."""
        self.on_idle: Callable[[], None] | None = None
        """Called when the last call in flight has ended."""
        self.results = CallResults(attempt_input, services, secrets)

    @property
    def number(self) -> int:
        """The number of the call that was opened last."""
        return self._count

    def has_answer(self, action: str, body: Json) -> bool:
        """Whether the next call, if it is this one, would be answered from the record."""
        number = self._count + 1
        return replay.has_success(
            self._attempt_input, number, f"{action}#{number}", ids.request_hash(body)
        )

    def skip(self, count: int) -> None:
        """Leave out numbers: this attempt made calls under them before it was paused."""
        self._count += count

    def end_attempt(self, outcome: Outcome) -> NoReturn:
        """Decide the attempt's outcome and leave the step's code."""
        self.decided_outcome = outcome
        raise EndAttempt(outcome)

    async def open(self, request: Request, prepare: Prepare | None = None) -> CallAnswer | Call:
        """Return the recorded answer, or a call whose intent is durable and that may begin."""
        numbered = await self._next(request)
        if isinstance(numbered, CallAnswer):
            return numbered
        self.in_flight += 1
        try:
            return await self._record_intent(numbered, prepare)
        except OutOfDescriptorsError as error:
            # No intent is recorded: the engine can make the same attempt again.
            self._end_call()
            self.end_attempt(error.outcome())
        except BaseException:
            self._end_call()
            raise

    async def operate(
        self, request: Request, operation: StateOperation | SnapshotOperation
    ) -> Json:
        """Use `state` or append a snapshot, which records the answer; or return the recorded one."""
        numbered = await self._next(request)
        if isinstance(numbered, CallAnswer):
            return numbered.response
        now = self._services.clock.now()
        body = StoredBody(request.body, None)
        intent = new_intent(self._attempt_input, numbered, body, None, now)
        self.in_flight += 1
        try:
            return await self._services.journal.operate(self._attempt_input, intent, operation)
        except RevokedError:
            self.is_revoked = True
            raise
        finally:
            self._end_call()

    async def offer(self, request: Request) -> CallAnswer | Intent:
        """Return the recorded answer, or the intent of a call that others will begin and record."""
        numbered = await self._next(request)
        if isinstance(numbered, CallAnswer):
            return numbered
        now = self._services.clock.now()
        return new_intent(self._attempt_input, numbered, StoredBody(None, None), None, now)

    async def _next(self, request: Request) -> CallAnswer | NumberedRequest:
        """Return the recorded answer of the next call, or its numbered request if it may be made.

        End the attempt if neither is possible.
        """
        self._check_open()
        self._count += 1
        numbered = await self._numbered(request, self._count)
        if self._attempt_input.calls:
            answer = await self._recorded_answer(numbered)
            if answer is not None:
                return answer
        if not self._attempt_input.may_act:
            self.end_attempt(Failed(attempts_exhausted_error(self._attempt_input)))
        if is_out_of_time(self._attempt_input, self._services.clock):
            self.end_attempt(out_of_time(self._attempt_input, self.checkpoint))
        return numbered

    def _check_open(self) -> None:
        """Refuse a call of an attempt that is over or decided."""
        if self.decided_outcome is not None:
            raise EndAttempt(self.decided_outcome)
        if self.is_revoked:
            raise RevokedError("this attempt is over")

    async def _numbered(self, request: Request, number: int) -> NumberedRequest:
        """Return a request with its number, its text and its hash; end the attempt if it is no JSON."""
        action = f"{request.action}#{number}"
        try:
            if is_small(request.body):
                text, digest = _encode_request(request.body, action)
            else:
                text, digest = await to_thread(_encode_request, request.body, action)
                self._check_open()
        except NotPlainJsonError as error:
            self.end_attempt(Failed(StepError("bad_request", "input", str(error))))
        return NumberedRequest(request, number, action, text, digest)

    async def _recorded_answer(self, numbered: NumberedRequest) -> CallAnswer | None:
        """Return the recorded answer; None when the call must be made.

        Raise the recorded failure. End the attempt where the record forbids the call: its effect is
        unknown, or it differs from the request that succeeded.
        """
        attempt_input, request = self._attempt_input, numbered.request
        match = replay.find_match(attempt_input, numbered)
        if match is None:
            return None
        call = match.call
        if call.status == CallStatus.UNKNOWN:
            changed_request: dict[str, Json] | None = None
            if not match.is_usable:
                body = self._secrets.redact_value(request.body)
                changed_request = {"action": numbered.action, "request": body}
            policy = UnknownPolicy(attempt_input, self._services, self._secrets, self.checkpoint)
            decision = await policy.apply(call, request, changed_request)
            if decision is None or isinstance(decision, CallAnswer):
                return decision
            self.end_attempt(decision)
        if call.status == CallStatus.FAILED:
            raise replay.failure_of(call)
        if not match.is_usable:
            self.end_attempt(Failed(replay.changed_error(call, numbered.action, attempt_input)))
        if call.error is not None and call.error.get("code") == replay.BAD_RESPONSE:
            self.end_attempt(Failed(replay.error_of(call), call.idempotency_key))
        is_inherited = call.attempt == 0
        return CallAnswer(
            call.response, call.idempotency_key, is_replayed=True, is_inherited=is_inherited
        )

    async def _record_intent(self, numbered: NumberedRequest, prepare: Prepare | None) -> Call:
        """Make the intent durable and return the call."""
        clock = self._services.clock
        if is_small(numbered.request.body):
            body, text = self._redact_request(numbered)
        else:
            body, text = await to_thread(self._redact_request, numbered)
        large = large_text(text, self._services.limits.inline_bytes)
        if large is not None:
            # Before `send_by` is set: an upload may take longer than the call may wait. Where the store does
            # not answer, the step waits, which uses up no attempt.
            await self._store_request(large)
        process = None if prepare is None else await prepare()
        if process is None and not file_descriptors.are_available():
            raise OutOfDescriptorsError(numbered.action)
        send_by = clock.now() + int(self._services.limits.send_window_seconds * SECOND)
        intent = new_intent(
            self._attempt_input, numbered, StoredBody(body, large), process, send_by
        )
        call = Call(
            intent.number,
            intent.action,
            intent.call_id,
            intent.idempotency_key,
            intent.remote_key,
            intent.send_by,
            numbered.request.is_effect,
            clock.monotonic(),
            reservation=intent.reservation,
        )
        self.results.expect(call, numbered.request)
        await self._journal_intent(intent, call)
        return replace(call, sent_at=clock.monotonic())

    def _redact_request(self, numbered: NumberedRequest) -> tuple[Json, str]:
        """Return a request's body as it is recorded, and as text; any thread may call this."""
        body = numbered.request.body
        redacted = self._secrets.redact_value(body)
        if redacted is body:
            return body, numbered.body_text
        return redacted, encode(redacted, f"the request of {numbered.action}")

    async def _store_request(self, text: str) -> None:
        """Store a large request ahead of its intent; the step waits if that cannot be done now."""
        reason = await self._services.journal.keep(self._attempt_input, text)
        if reason:
            self.await_store(reason)

    def await_store(self, reason: str) -> NoReturn:
        """End the attempt: its step waits for a store, without a slot, and the attempt does not count."""
        wake_at = self._services.clock.now() + _STORE_RETRY_SECONDS * SECOND
        timer = Timer(wake_at, store_error=self._secrets.redact(reason))
        self.end_attempt(Waiting(timer, wake_at, self.checkpoint))

    async def _journal_intent(self, intent: Intent, call: Call) -> None:
        """Wait until the intent is durable; end the attempt where a budget refuses it."""
        try:
            await self._services.journal.intend(self._attempt_input, intent)
        except RevokedError:
            self.is_revoked = True
            raise
        except BudgetRefusedError as error:
            if error.must_fail:
                self.end_attempt(Failed(StepError(error.code, "limit", error.message)))
            self.end_attempt(Paused(self.checkpoint))
        except BaseException:
            # Whether the intent is durable is not known. Nothing was sent, and this result records that.
            self.results.record(call, CallStatus.FAILED, error=_not_sent(call), spend=Spend())
            raise

    def check_may_begin(self, call: Call) -> None:
        """Check, last before the first byte, that the call may still begin; any thread may call."""
        if self.is_revoked:
            raise RevokedError("this attempt is over")
        if call.is_effect and self._is_too_late(call):
            raise DefiniteFailure(
                f"{call.action} was not sent: its intent took too long to record",
                code="not_sent",
                kind="limit",
            )

    def _is_too_late(self, call: Call) -> bool:
        """Whether other workers may treat the call as lost, by either clock: one may be set back."""
        clock, seconds = self._services.clock, self._services.limits.send_window_seconds
        return clock.now() > call.send_by or clock.monotonic() - call.opened_at > seconds

    def record_success(
        self, call: Call, response: EncodedResponse | StepError, spend: Spend | None = None
    ) -> Json:
        """Record a call's response and return it as it is recorded."""
        if isinstance(response, StepError):
            self._resolve(call, CallStatus.SUCCEEDED, error=response, spend=spend)
            self.end_attempt(Failed(response, call.idempotency_key))
        self._resolve(call, CallStatus.SUCCEEDED, response, spend=spend)
        return response.value

    def record_failure(self, call: Call, exception: BaseException, *, has_begun: bool) -> None:
        """Record the failure of a call; where its effect may have happened, leave it unknown."""
        if has_begun and isinstance(exception, CancelledError):
            self.is_cut_off = True
        if isinstance(exception, EndCallError):
            if exception.error is None:
                self._end_call()
            else:
                self._resolve(call, CallStatus.FAILED, error=exception.error)
            self.end_attempt(exception.outcome)
        if isinstance(exception, DefiniteFailure):
            spend = exception.spend if has_begun else Spend()
            error = replace(
                self.results.redacted(exception.error), is_final=not exception.may_retry
            )
            self._resolve(call, CallStatus.FAILED, error=error, spend=spend)
        elif not has_begun:
            self._resolve(call, CallStatus.FAILED, error=_not_sent(call), spend=Spend())
        elif not call.is_effect:
            error = StepError("failed", "code", describe_exception(exception))
            self._resolve(call, CallStatus.FAILED, error=self.results.redacted(error))
        else:
            self._end_unknown(call, exception)

    def _end_unknown(self, call: Call, exception: BaseException) -> None:
        """End a call without a result: its row stays unknown, and the attempt ends.

        An interruption of the attempt is not replaced: the caller raises it on.
        """
        self._end_call()
        delay_seconds = None
        if isinstance(exception, UnknownOutcomeError):
            error, delay_seconds = exception.error, exception.delay_seconds
        else:
            why = self.interruption() if isinstance(exception, CancelledError) else None
            reason = why or describe_exception(exception)
            text = f"{call.action} was interrupted ({reason}): whether it happened is unknown"
            error = StepError("unknown_outcome", "unknown", text)
        self.decided_outcome = Retry(self.results.redacted(error), delay_seconds, is_unknown=True)
        self.results.trace(call, CallStatus.UNKNOWN, error=self.results.redacted(error))
        if isinstance(exception, Exception):
            raise EndAttempt(self.decided_outcome) from exception

    def _resolve(
        self,
        call: Call,
        status: CallStatus,
        response: EncodedResponse | None = None,
        error: StepError | None = None,
        spend: Spend | None = None,
    ) -> None:
        """Record the result of a call in flight, which ends it."""
        self.results.record(call, status, response, error, spend)
        self._end_call()

    def _end_call(self) -> None:
        """Count a call in flight as ended."""
        self.in_flight -= 1
        if self.in_flight == 0 and self.on_idle is not None:
            self.on_idle()


def _encode_request(body: Json, action: str) -> tuple[str, str]:
    """Return a request as text, and its hash; any thread may call this.

    The hash is of the request as it is sent, so it does not depend on which secrets are known.
    """
    return encode(body, f"the request of {action}"), ids.request_hash(body)


def _not_sent(call: Call) -> StepError:
    return StepError("not_sent", "limit", f"{call.action} was not sent")
