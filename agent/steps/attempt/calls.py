"""The journaled calls of one attempt: intent before effect, replay of what is known.

Calls are numbered by their order. One that succeeded, or failed for good, is answered from the
record. One that may have happened is never repeated by itself: what to do is the step's
`on_unknown`, and nothing is done before the earlier send must be over.
"""

from asyncio import CancelledError, to_thread
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final, NoReturn

from agent.core import file_descriptors, ids
from agent.core.clock import SECOND, Clock
from agent.core.state_machine import CallStatus
from agent.core.waits import Timer, UnknownCall
from agent.steps.attempt import replay
from agent.steps.attempt.approval_gate import own_checkpoint
from agent.steps.attempt.containment import MAX_ERROR_TEXT, described
from agent.steps.attempt.secrets import Secrets
from agent.steps.attempt.services import Services
from agent.steps.spec.output_checks import large
from agent.steps.types.attempt_input import AttemptInput, BudgetRefusedError, RevokedError
from agent.steps.types.call_records import CallResult, Intent, RecordedCall, Spend
from agent.steps.types.call_types import Call, CallAnswer, Process, Request
from agent.steps.types.errors import (
    Applied,
    DefiniteFailure,
    EndAttempt,
    OutOfDescriptorsError,
    UnknownOutcomeError,
)
from agent.steps.types.outcome import Failed, Json, Outcome, Paused, Retry, StepError, Waiting
from agent.steps.types.value_sizes import is_small
from agent.store.db.json_values import NotPlainJsonError, encode

EncodedResponse = tuple[Json, str] | StepError
"""An answer as it is kept and as text, or why it cannot be kept."""
_STORE_WAIT_SECONDS: Final = 15
"""After so long a step tries again to store a large request."""


class Calls:
    """The calls of one attempt; most methods belong to the event loop's thread."""

    def __init__(self, claimed: AttemptInput, services: Services, secrets: Secrets) -> None:
        self._claimed = claimed
        self._services = services
        self._secrets = secrets
        self._count = 0
        self.in_flight = 0
        self.is_revoked = False
        self.is_cut_off = False
        """Whether a call was cancelled after it had begun."""
        self.checkpoint: Json = own_checkpoint(claimed)
        self.ended: Outcome | None = None
        """The outcome that a call has decided; nothing the step does afterwards changes it."""
        self.on_idle: Callable[[], None] | None = None
        """Called when no call is in flight any more."""

    @property
    def number(self) -> int:
        """The number of the call that was opened last."""
        return self._count

    def has_answer(self, action: str, body: Json) -> bool:
        """Whether the next call, if it is this one, would be answered from the record."""
        number = self._count + 1
        body_hash = ids.request_hash(body)
        return any(
            call.number == number
            and call.status == CallStatus.SUCCEEDED
            and call.action == f"{action}#{number}"
            and call.request_hash == body_hash
            for call in self._claimed.calls
        )

    def end(self, outcome: Outcome) -> NoReturn:
        """Decide the attempt's outcome and leave the step's code."""
        self.ended = outcome
        raise EndAttempt(outcome)

    async def open(
        self, request: Request, prepare: Callable[[], Awaitable[Process | None]] | None = None
    ) -> CallAnswer | Call:
        """Return the recorded answer, or a call whose intent is durable and that may begin."""
        self._check_open()
        self._count += 1
        number = self._count
        action = f"{request.action}#{number}"
        try:
            if is_small(request.body):
                body, body_hash = _written(request.body, action)
            else:
                body, body_hash = await to_thread(_written, request.body, action)
                self._check_open()
        except NotPlainJsonError as problem:
            self.end(Failed(StepError("bad_request", "input", str(problem))))
        key = ids.idempotency_key(
            self._claimed.task.id, self._claimed.step_id, self._claimed.attempt, action, body_hash
        )
        past = [call for call in self._claimed.calls if call.number == number]
        if past:
            answer = await self._from_record(number, request, action, body_hash)
            if answer is not None:
                return answer
        if not self._claimed.may_act:
            self.end(Failed(exhausted(self._claimed)))
        if is_out_of_time(self._claimed, self._services.clock):
            self.end(out_of_time(self._claimed, self.checkpoint))
        self.in_flight += 1
        try:
            return await self._intend(request, number, action, body_hash, key, past, prepare, body)
        except OutOfDescriptorsError as problem:
            # Found before the intent: the same attempt can be made again.
            self._leave()
            self.end(problem.outcome())
        except BaseException:
            self._leave()
            raise

    def _check_open(self) -> None:
        """Refuse a call of an attempt that is over or decided."""
        if self.ended is not None:
            raise EndAttempt(self.ended)
        if self.is_revoked:
            raise RevokedError("this attempt is over")

    def begin(self, call: Call) -> None:
        """Check, last before the first byte, that the call may still begin; any thread may ask."""
        if self.is_revoked:
            raise RevokedError("this attempt is over")
        if call.is_effect and self._is_too_late(call):
            raise DefiniteFailure(
                f"{call.action} was not sent: its intent took too long to record",
                code="not_sent",
                kind="limit",
            )

    def _is_too_late(self, call: Call) -> bool:
        """Whether others may have given the call up, by either clock: one may have been set back."""
        clock, seconds = self._services.clock, self._services.limits.send_window_seconds
        return clock.now() > call.send_by or clock.monotonic() - call.opened_at > seconds

    def encoded(self, call: Call, response: Json) -> EncodedResponse:
        """Return a call's answer as it is kept, and as text; any thread may ask for it."""
        where = f"the response of {call.action}"
        try:
            response = self._secrets.redact_value(response)
            return response, encode(response, where)
        except BaseException as problem:  # also a method of the answer may raise
            # It happened, whatever its answer looks like: the ledger says so, the step fails.
            is_deep = isinstance(problem, RecursionError)
            reason = f"{where}: it is nested too deeply" if is_deep else described(problem)
            if isinstance(problem, NotPlainJsonError):
                reason = str(problem)
            return self._clean(StepError(replay.BAD_RESPONSE, "code", reason))

    def succeed(self, call: Call, encoded: EncodedResponse, spend: Spend | None = None) -> Json:
        """Record a call's answer and return it as it is kept."""
        if isinstance(encoded, StepError):
            self._resolve(call, CallStatus.SUCCEEDED, error=encoded, spend=spend)
            self.end(Failed(encoded, call.idempotency_key))
        response, text = encoded
        apart = large(text, self._services.limits.inline_bytes)
        self._resolve(call, CallStatus.SUCCEEDED, response, spend=spend, apart=apart)
        return response

    def fail(self, call: Call, problem: BaseException, *, has_begun: bool) -> None:
        """Record what an exception says of a call, or leave it unknown and end the attempt."""
        if has_begun and isinstance(problem, CancelledError):
            self.is_cut_off = True
        if isinstance(problem, DefiniteFailure):
            spend = problem.spend if has_begun else Spend()
            error = replace(self._clean(problem.error), is_final=not problem.may_retry)
            self._resolve(call, CallStatus.FAILED, error=error, spend=spend)
        elif not has_begun:
            error = StepError("not_sent", "limit", f"{call.action} was not sent")
            self._resolve(call, CallStatus.FAILED, error=error, spend=Spend())
        elif not call.is_effect:
            error = StepError("failed", "code", described(problem))
            self._resolve(call, CallStatus.FAILED, error=self._clean(error))
        else:
            self._leave_unknown(call, problem)

    async def _from_record(
        self, number: int, request: Request, action: str, body_hash: str
    ) -> CallAnswer | None:
        """CallAnswer from what is on record; None when the call is to be made."""
        claimed = self._claimed
        known = replay.find(claimed.calls, number, request, action, body_hash, claimed.attempt)
        if known is None:
            return None
        call = known.call
        if call.status == CallStatus.UNKNOWN:
            now = None
            if not known.is_same:
                now = {"action": action, "request": self._secrets.redact_value(request.body)}
            return await self._settle_unknown(call, request, now)
        if call.status == CallStatus.FAILED:
            raise replay.failure_of(call)
        if not known.is_same:
            self.end(Failed(_changed(call, action, claimed)))
        if call.error is not None and call.error.get("code") == replay.BAD_RESPONSE:
            self.end(Failed(replay.error_of(call), call.idempotency_key))
        return CallAnswer(call.response, call.idempotency_key, True, call.attempt == 0)

    async def _settle_unknown(
        self, call: RecordedCall, request: Request, now: dict[str, Json] | None
    ) -> CallAnswer | None:
        """Follow `on_unknown`; `now` is what would be sent, when that is another request."""
        if self._services.clock.now() < call.expires_at and request.is_effect:
            then = request.on_unknown if now is None or request.on_unknown == "fail" else "ask"
            on = Timer(call.expires_at, on_unknown=then)
            self.end(Waiting(on, call.expires_at, self.checkpoint))
        if request.on_unknown == "fail":
            text = (
                f"whether {call.action} happened is unknown, and `on_unknown: fail` fails the step."
                " A retry fails the same way"
            )
            error = StepError("unknown_outcome", "unknown", text)
            self.end(Failed(_fork_only(error, self._claimed)))
        if now is not None:
            # Neither policy covers a request that was never sent, nor does a remote know its key.
            self.end(Waiting(UnknownCall(call.call_id), None, self.checkpoint, now))
        if request.on_unknown == "reconcile" and request.reconcile is not None:
            found = await request.reconcile(call)
            if isinstance(found, Applied) or found is True:
                response = found.response if isinstance(found, Applied) else None
                response = self._secrets.redact_value(response)
                self._resolve_checked(call, CallStatus.SUCCEEDED, response)
                return CallAnswer(response, call.idempotency_key)
            if found is False:
                self._resolve_checked(call, CallStatus.FAILED, None)
                if not self._claimed.may_act:
                    text = f"attempts exhausted; {call.action} did not happen"
                    self.end(Failed(StepError("attempts_exhausted", "remote", text)))
                return None
        if request.on_unknown in ("ask", "reconcile"):
            self.end(Waiting(UnknownCall(call.call_id), None, self.checkpoint))
        return None

    async def _intend(
        self,
        request: Request,
        number: int,
        action: str,
        body_hash: str,
        key: str,
        past: list[RecordedCall],
        prepare: Callable[[], Awaitable[Process | None]] | None,
        body: str,
    ) -> Call:
        claimed, clock = self._claimed, self._services.clock
        if is_small(request.body):
            shown, body = self._shown(request.body, body, action)
        else:
            shown, body = await to_thread(self._shown, request.body, body, action)
        apart = large(body, self._services.limits.inline_bytes)
        if apart is not None and (reason := await self._services.journal.keep(claimed, apart)):
            # Before the time in which it may be sent begins, and without using up an attempt.
            again = clock.now() + _STORE_WAIT_SECONDS * SECOND
            self.end(Waiting(Timer(again, store_error=reason), again, self.checkpoint))
        if prepare is not None:
            process = await prepare()
        else:
            process = None
            if not file_descriptors.are_available():
                raise OutOfDescriptorsError(action)
        unknown = replay.last_unknown(past, action, body_hash)
        send_by = clock.now() + int(self._services.limits.send_window_seconds * SECOND)
        intent = Intent(
            call_id=ids.new_id(),
            number=number,
            action=action,
            request=shown,
            request_hash=body_hash,
            idempotency_key=key,
            # To the remote, the same request after an unknown one is a repetition. Another request
            # has another key: the remote would answer it from its memory of the first.
            remote_key=unknown.remote_key
            if unknown is not None
            else ids.remote_key(
                claimed.task.origin_id, _place(claimed), action, body_hash, claimed.failures
            ),
            on_unknown=request.on_unknown,
            send_by=send_by,
            expires_at=send_by + int(request.timeout_seconds * SECOND),
            process_id=process.id if process is not None else None,
            process_started=process.started if process is not None else None,
            settles_step=request.settles_step,
            reservation=request.reservation,
            large=apart,
        )
        call = Call(
            number,
            action,
            intent.call_id,
            key,
            intent.remote_key,
            send_by,
            request.is_effect,
            clock.monotonic(),
            reservation=request.reservation,
        )
        try:
            await self._services.journal.intend(claimed, intent)
        except RevokedError:
            self.is_revoked = True
            raise
        except BudgetRefusedError as refusal:
            if refusal.must_fail:
                self.end(Failed(StepError(refusal.code, "limit", refusal.message)))
            self.end(Paused(self.checkpoint))
        except BaseException:
            # The intent may be durable or not; what is sure is that nothing was sent.
            error = StepError("not_sent", "limit", f"{action} was not sent")
            self._record(call, CallStatus.FAILED, None, error, Spend())
            raise
        return replace(call, sent_at=clock.monotonic())

    def _shown(self, body: Json, text: str, action: str) -> tuple[Json, str]:
        """Return a request as it is kept, and as text; any thread may ask for it."""
        shown = self._secrets.redact_value(body)
        return shown, text if shown is body else encode(shown, f"the request of {action}")

    def _leave_unknown(self, call: Call, problem: BaseException) -> None:
        self._leave()
        if isinstance(problem, UnknownOutcomeError):
            error, delay = self._clean(problem.error), problem.delay_seconds
        else:
            delay = None
            reason = described(problem)
            error = self._clean(
                StepError(
                    "unknown_outcome",
                    "unknown",
                    f"{call.action} was interrupted ({reason}): whether it happened is unknown",
                )
            )
        self.ended = Retry(error, delay, is_unknown=True)
        if isinstance(problem, Exception):
            raise EndAttempt(self.ended) from problem

    def _resolve(
        self,
        call: Call,
        status: CallStatus,
        response: Json = None,
        error: StepError | None = None,
        spend: Spend | None = None,
        apart: str | None = None,
    ) -> None:
        self._record(call, status, response, error, spend, apart)
        self._leave()

    def _record(
        self,
        call: Call,
        status: CallStatus,
        response: Json,
        error: StepError | None,
        spend: Spend | None = None,
        apart: str | None = None,
    ) -> None:
        now = self._services.clock.monotonic()
        result = CallResult(
            call.call_id,
            call.idempotency_key,
            status,
            response,
            error,
            latency_ms=0 if call.sent_at is None else int((now - call.sent_at) * 1000),
            reservation=call.reservation,
            spend=spend if call.reservation is not None else None,
            large=apart,
        )
        self._services.journal.resolve(self._claimed, result)

    def _resolve_checked(self, call: RecordedCall, status: CallStatus, response: Json) -> None:
        error = None
        if status == CallStatus.FAILED:
            error = StepError("not_applied", "remote", f"{call.action} did not happen")
        self._services.journal.resolve(
            self._claimed,
            CallResult(
                call.call_id,
                call.idempotency_key,
                status,
                response,
                error,
                is_resolved_by_check=True,
            ),
        )

    def _leave(self) -> None:
        self.in_flight -= 1
        if self.in_flight == 0 and self.on_idle is not None:
            self.on_idle()

    def _clean(self, error: StepError) -> StepError:
        return StepError(
            error.code, error.kind, self._secrets.redact(error.message)[: 2 * MAX_ERROR_TEXT]
        )


def _written(body: Json, action: str) -> tuple[str, str]:
    """Return a request as text, and the hash of it; any thread may ask for them.

    The hash is of what is sent, so that it is the same whatever is known as a secret by now.
    """
    return encode(body, f"the request of {action}"), ids.request_hash(body)


def exhausted(claimed: AttemptInput) -> StepError:
    """Say that an attempt beyond the last may not act."""
    error = claimed.last_error or {}
    last = f"; {error['message']}" if error.get("class") == "crash" else ""
    if any(call.status == CallStatus.UNKNOWN for call in claimed.calls):
        text = f"attempts exhausted, outcome unknown{last}"
        return StepError("attempts_exhausted", "unknown", text)
    text = f"attempts exhausted: all {claimed.attempt - 1} were used{last}"
    return StepError("attempts_exhausted", "crash", text)


def is_out_of_time(claimed: AttemptInput, clock: Clock) -> bool:
    """Whether the step's own time is over and pauses its task; what is in flight may finish."""
    deadline = claimed.deadline if claimed.pauses_when_time_is_over else None
    return deadline is not None and clock.now() >= deadline


def out_of_time(claimed: AttemptInput, checkpoint: Json) -> Paused:
    """Return the outcome that pauses the task for the step's own time."""
    name = claimed.step.name
    command = f"budget {claimed.task.id[-8:]} --step {name} --time D"
    reason = f"the time of step {name!r} is over; `agent {command}` raises it"
    return Paused(checkpoint, reason, command)


def _changed(call: RecordedCall, action: str, claimed: AttemptInput) -> StepError:
    """Say that the answer on record is for another request, and how to go on."""
    what = action if call.action != action else f"{action} with another request"
    text = (
        f"the step's calls are no longer the same: call {call.number} was {call.action}, which"
        f" succeeded, and is now {what}; the recorded answer is not used for it, and nothing is"
        " done again"
    )
    return _fork_only(StepError("calls_changed", "input", text), claimed)


def _fork_only(error: StepError, claimed: AttemptInput) -> StepError:
    """Add the command that goes on where a retry would fail for the same reason."""
    command = f"fork {claimed.task.id[-8:]} --from {claimed.step.name}"
    advice = f"`agent {command}` runs the step from its beginning, with all its effects"
    return replace(error, message=f"{error.message}. {advice}", command=command)


def _place(claimed: AttemptInput) -> str:
    """Name a step so that the items of a group have different keys."""
    if claimed.parallel_index is None:
        return claimed.step.name
    return f"{claimed.step.name}[{claimed.parallel_index}]"
