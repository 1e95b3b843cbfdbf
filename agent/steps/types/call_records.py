"""The records of a step's calls and approvals, before and after they happen."""

from agent.core.plain_json import Json
from agent.core.quick_classes.quick_dataclasses import dataclass
from agent.core.state_machine import ApprovalStatus, CallStatus
from agent.steps.types.outcome import StepError


@dataclass(frozen=True, slots=True)
class Reservation:
    """The most that a call of a model may use; the intent reserves it."""

    model: str
    prompt_hash: str
    tokens: int
    microusd: int | None
    """None when the model has no price."""
    day: str
    """The day (UTC) that it counts for."""
    step_budget: str | None = None
    """The name of its step's own budget, if it has one."""
    ms: int = 0
    """The timeout of the call."""
    daily_tokens: int | None = None
    daily_microusd: int | None = None
    daily_ms: int | None = None
    """The limits of a day for all tasks together."""
    section: str = ""
    """The model's name in the configuration, as in `[models.fast]`; `model` is the provider's."""


@dataclass(frozen=True, slots=True)
class Spend:
    """The use of a call of a model."""

    tokens_in: int = 0
    tokens_out: int = 0
    microusd: int | None = 0
    request_id: str | None = None
    stop_reason: str | None = None


@dataclass(frozen=True, slots=True)
class Intent:
    """A call about to begin; its row is durable (status unknown) before its first byte leaves."""

    call_id: str
    number: int
    action: str
    request: Json
    request_hash: str
    idempotency_key: str
    remote_key: str
    on_unknown: str
    send_by: int
    expires_at: int
    process_id: int | None = None
    process_started: str | None = None
    settles_step: bool = False
    """True when this call's result is the step's outcome (`http`, `shell`)."""
    reservation: Reservation | None = None
    large: str | None = None
    """The request as JSON, when it is stored apart from its row."""


@dataclass(frozen=True, slots=True)
class CallResult:
    """The result of a call, which resolves its row in the ledger."""

    call_id: str
    idempotency_key: str
    status: CallStatus
    response: Json = None
    error: StepError | None = None
    latency_ms: int | None = None
    """How long it took; None when no worker saw its end."""
    is_resolved_by_check: bool = False
    """True when a reconcile or a person resolved it, not the call's own response."""
    resolved_by: str | None = None
    """The person who resolved it without a question of the step."""
    reservation: Reservation | None = None
    spend: Spend | None = None
    """The use of its reservation besides time; None when unknown: then the reservation stays."""
    large: str | None = None
    """The response as JSON, when it is stored apart from its row."""


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """A recorded call of this step, from this or an earlier attempt."""

    call_id: str
    number: int
    attempt: int
    """0 when the task that this one is a retry of made it."""
    action: str
    idempotency_key: str
    remote_key: str
    request_hash: str
    status: CallStatus
    response: Json
    error: dict[str, Json] | None
    on_unknown: str
    expires_at: int


@dataclass(frozen=True, slots=True)
class RecordedApproval:
    """A recorded question of this step, with its decision."""

    approval_id: str
    kind: str
    status: ApprovalStatus
    request_hash: str
    approved_hash: str | None
    """The hash of the approved request; it differs from `request_hash` when the answer edited the request."""
    by: str | None
    channel: str | None
    comment: str | None
    value: Json
    edits: dict[str, Json] | None
