"""What an attempt may end in. Outcomes are values: the runner decides, the engine applies."""

from dataclasses import dataclass, field
from typing import Any, Final

from agent.core.state_machine import ApprovalStatus, CallStatus

Json = Any
"""A plain JSON value: None, bool, int, float, str, list or dict of these."""

TRUNCATED: Final = "truncated"
"""The key by which a response says that it is larger than the limit and not whole."""


@dataclass(frozen=True, slots=True)
class StepError:
    """Why a step did not succeed: a code for programs, a class for policy, a message for people.

    `kind` is one of: `input` (the definition or its data), `remote` (what was called said no),
    `transport` (it could not be reached), `timeout`, `limit`, `crash`, `unknown`, `code` (the
    user's function raised), `denied`, `child`, `internal`.
    """

    code: str
    kind: str
    message: str
    is_final: bool = False
    """Of a call: whether it said that to try again is of no use."""

    def document(self, attempt: int) -> dict[str, Json]:
        """Return the error as it is stored and shown."""
        document = {
            "code": self.code,
            "class": self.kind,
            "message": self.message,
            "attempt": attempt,
        }
        return {**document, "final": True} if self.is_final else document

    @classmethod
    def read(cls, document: dict[str, Json]) -> "StepError":
        """Return an error as it was stored."""
        return cls(
            str(document.get("code", "failed")),
            str(document.get("class", "remote")),
            str(document.get("message", "failed")),
            document.get("final") is True,
        )


@dataclass(frozen=True, slots=True)
class Reservation:
    """What a call of a model may use at most; it is set aside when its intent is recorded."""

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
    """The time after which it is given up."""
    daily_tokens: int | None = None
    daily_microusd: int | None = None
    daily_ms: int | None = None
    """What all tasks together may use in a day."""
    section: str = ""
    """The model's name in the configuration, as in `[models.fast]`; `model` is the provider's."""


@dataclass(frozen=True, slots=True)
class Spend:
    """What a call of a model used in fact."""

    tokens_in: int = 0
    tokens_out: int = 0
    microusd: int | None = 0
    request_id: str | None = None
    stop_reason: str | None = None


@dataclass(frozen=True, slots=True)
class CallResult:
    """What became of one intended call; it resolves that call's row in the ledger."""

    call_id: str
    idempotency_key: str
    status: CallStatus
    response: Json = None
    error: StepError | None = None
    latency_ms: int | None = None
    """How long it took; None when nobody has seen its end."""
    is_resolved_by_check: bool = False
    """True when a reconcile or a person told it, not the call's own answer."""
    reservation: Reservation | None = None
    spend: Spend | None = None
    """What it used of its reservation besides time; None when nobody knows: then it stays set aside."""
    large: str | None = None
    """The response as it is stored, when it is to be kept apart."""


@dataclass(slots=True)
class Succeeded:
    """The step is done. `items` makes it a group whose items run next; `skipped` says why not."""

    output: Json = None
    skipped: str | None = None
    items: list[Json] | None = None
    idempotency_key: str | None = None
    """The call whose result is this outcome (`http`, `shell`)."""
    large: str | None = None
    """The output as it is stored, when it is to be kept apart from its step."""
    text: str | None = field(default=None, compare=False, repr=False)
    """The output as it is stored, once the runner has checked it: the same said once more."""


@dataclass(frozen=True, slots=True)
class Retry:
    """It did not work and may be tried again; `delay_seconds` is what the remote asked for."""

    error: StepError
    delay_seconds: float | None = None
    is_unknown: bool = False
    """True when an effect of this attempt may have happened; False counts as a definite failure."""


@dataclass(frozen=True, slots=True)
class Failed:
    """It did not work and will not."""

    error: StepError
    idempotency_key: str | None = None


@dataclass(frozen=True, slots=True)
class Waiting:
    """The step waits on something named, holding no claim, no slot and no timeout.

    `on` is one of ``{"timer": instant_us}``, ``{"signal": name}``, ``{"unknown": call_id}``,
    ``{"child": task_id}``, ``{"approval": question}`` (an `Asked` as a document; the row is made
    when this is settled). Beside an unknown, `now` is what the step would send instead of it. Beside
    a timer, `in_doubt` says that an effect may be under way until then, and what follows
    (`on_unknown`). With `wake_at` it is woken then at the latest.
    """

    on: dict[str, Json]
    wake_at: int | None = None
    checkpoint: Json = None


@dataclass(frozen=True, slots=True)
class Paused:
    """The attempt stopped at a checkpoint because the task is paused, or is to be."""

    checkpoint: Json = None
    exhausted: str | None = None
    """The budget for which the task is to be paused, as the reason that people are told."""


@dataclass(frozen=True, slots=True)
class Returned:
    """The attempt was given back unstarted or at a clean point, as when the worker shuts down."""

    reason: str = "shutdown"
    delay_seconds: float = 0.0


Outcome = Succeeded | Retry | Failed | Waiting | Paused | Returned


@dataclass(frozen=True, slots=True)
class Intent:
    """An effect about to begin; its row is durable (status unknown) before its first byte leaves."""

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
    """The request as it is stored, when it is to be kept apart."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A question to a person, as an outcome carries it to where its row is made."""

    kind: str
    message: str
    request: Json
    """What will be done, in full: an answer is good for exactly this."""
    choices: list[Json] | None = None
    schema: dict[str, Json] | None = None
    editable: list[str] | None = None
    who: list[str] | None = None
    expires_seconds: float | None = None
    on_expiry: str = "fail"
    remind_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class RecordedApproval:
    """A question of this step that is on record, with what was decided."""

    approval_id: str
    kind: str
    status: ApprovalStatus
    request_hash: str
    approved_hash: str | None
    """Of what was approved: another than was shown when the answer edited it."""
    by: str | None
    channel: str | None
    comment: str | None
    value: Json
    edits: dict[str, Json] | None


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """A call of this step that is on record, from this or an earlier attempt."""

    call_id: str
    number: int
    attempt: int
    """0 when it was made by the task that this one is a retry of."""
    action: str
    idempotency_key: str
    remote_key: str
    request_hash: str
    status: CallStatus
    response: Json
    error: dict[str, Json] | None
    on_unknown: str
    expires_at: int
