"""The intent of a call: the row that is durable before the call's first byte leaves."""

from dataclasses import dataclass

from agent.core import ids
from agent.core.clock import SECOND
from agent.steps.attempt.recorded_calls import replay
from agent.steps.types.attempt_input import AttemptInput
from agent.steps.types.call_records import Intent
from agent.steps.types.call_types import NumberedRequest, Process
from agent.steps.types.outcome import Json


@dataclass(slots=True, eq=False)
class StoredBody:
    """A request's body as it is recorded."""

    value: Json
    large: str | None
    """As text, when it is stored apart from its row."""


def new_intent(
    attempt_input: AttemptInput,
    numbered: NumberedRequest,
    body: StoredBody,
    process: Process | None,
    send_by: int,
) -> Intent:
    """Return the intent of a call that begins until `send_by` or not at all."""
    request, action, body_hash = numbered.request, numbered.action, numbered.body_hash
    # To the remote, the same request after an unknown one is a repetition. Another request has
    # another key: the remote would answer it from its memory of the first.
    unknown = replay.last_unknown(attempt_input, numbered) if attempt_input.calls else None
    failures = 0 if request.keeps_key else attempt_input.failures
    return Intent(
        call_id=ids.new_id(),
        number=numbered.number,
        action=action,
        request=body.value,
        request_hash=body_hash,
        idempotency_key=ids.idempotency_key(
            attempt_input.task.id, attempt_input.step_id, attempt_input.attempt, action, body_hash
        ),
        remote_key=unknown.remote_key
        if unknown is not None
        else ids.remote_key(
            attempt_input.task.origin_id,
            _step_key(attempt_input),
            action,
            body_hash,
            failures,
        ),
        on_unknown=request.on_unknown,
        send_by=send_by,
        expires_at=send_by + int(request.timeout_seconds * SECOND),
        process_id=process.id if process is not None else None,
        process_started=process.started if process is not None else None,
        settles_step=request.settles_step,
        reservation=request.reservation,
        large=body.large,
    )


def _step_key(attempt_input: AttemptInput) -> str:
    """Name a step so that the items of a group have different keys."""
    if attempt_input.parallel_index is None:
        return attempt_input.step.name
    return f"{attempt_input.step.name}[{attempt_input.parallel_index}]"
