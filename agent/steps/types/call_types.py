"""The values of a journaled call: what is asked, what is about to begin, what came of it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from agent.steps.types.call_records import RecordedCall, Reservation, Spend
from agent.steps.types.errors import Applied
from agent.steps.types.outcome import Json

Reconcile = Callable[[RecordedCall], Awaitable[Applied | bool | None]]


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked of the outside world, and how its failures are to be treated."""

    action: str
    body: Json
    on_unknown: str
    timeout_seconds: float
    """When a call that was lost must be over."""
    is_bounded: bool = False
    """Whether the call is interrupted then; its attempt's own time ends it in any case."""
    is_effect: bool = True
    settles_step: bool = False
    """Whether its answer is the step's outcome."""
    leads: bool = False
    """Whether the calls after it follow from its answer, as in a conversation."""
    reconcile: Reconcile | None = None
    reservation: Reservation | None = None


@dataclass(frozen=True, slots=True)
class MeasuredResponse:
    """What the function of a call returns when it knows what the call used."""

    response: Json
    spend: Spend | None


@dataclass(frozen=True, slots=True)
class Process:
    """The process that will carry out a call; it waits until the intent is durable."""

    id: int
    started: str


@dataclass(frozen=True, slots=True)
class Call:
    """One call that is about to begin; `remote_key` is for the remote's `Idempotency-Key`."""

    number: int
    action: str
    call_id: str
    idempotency_key: str
    remote_key: str
    send_by: int
    is_effect: bool
    opened_at: float
    sent_at: float | None = None
    """When its intent was durable; None before that."""
    reservation: Reservation | None = None


@dataclass(frozen=True, slots=True)
class CallAnswer:
    """What a call gave, now or in an earlier attempt."""

    response: Json
    idempotency_key: str
    is_replayed: bool = False
    """Whether it was on record from an earlier attempt, or from before a pause."""
    is_inherited: bool = False
    """Whether it was on record from the task that this one is a retry of."""
