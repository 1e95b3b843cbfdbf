"""The values of a journaled call: its request, the call that may begin, and its answer."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from agent.core.plain_json import Json
from agent.steps.types.call_records import RecordedCall, Reservation, Spend
from agent.steps.types.errors import Applied, DefiniteFailure, EndCallError

Reconcile = Callable[[RecordedCall], Awaitable[Applied | bool | None]]
Found = Applied | DefiniteFailure | EndCallError | None
Lookup = Callable[[RecordedCall], Awaitable[Found]]


@dataclass(frozen=True, slots=True)
class Request:
    """The request of a call to the outside world, and the policy for its failures."""

    action: str
    body: Json
    on_unknown: str
    timeout_seconds: float
    """The longest time that the call can take: after it, a lost call is over."""
    is_bounded: bool = False
    """Whether the call is interrupted after `timeout_seconds`. The attempt's own timeout always is."""
    is_effect: bool = True
    settles_step: bool = False
    """Whether its answer is the step's outcome."""
    keeps_key: bool = False
    """Whether its key stays the same after failures: its effect is recorded under the key, once."""
    leads: bool = False
    """Whether the calls after it follow from its answer, as in a conversation."""
    reconcile: Reconcile | None = None
    lookup: Lookup | None = None
    """Finds an unknown call again where an executor runs it, before `on_unknown` applies: what came of
    it, or None where that cannot be known. It waits for a call that is still under way."""
    reservation: Reservation | None = None


@dataclass(slots=True, eq=False)
class NumberedRequest:
    """A request as the ledger identifies it: by its number in the attempt and the hash of its body."""

    request: Request
    number: int
    action: str
    """The request's action with its number, as in `http.post#1`."""
    body_text: str
    """The body as JSON, with its secrets."""
    body_hash: str

    def matches(self, call: RecordedCall) -> bool:
        """Whether a recorded call sent this very request."""
        return call.action == self.action and call.request_hash == self.body_hash


@dataclass(frozen=True, slots=True)
class MeasuredResponse:
    """The return value of a call's function that knows the call's use."""

    response: Json
    spend: Spend | None


@dataclass(slots=True, eq=False)
class EncodedResponse:
    """A call's response as it is recorded: without secrets, and as text."""

    value: Json
    text: str


@dataclass(frozen=True, slots=True)
class Process:
    """The process that will carry out a call; it waits until the intent is durable."""

    id: int
    started: str


@dataclass(frozen=True, slots=True)
class Call:
    """A call whose intent is durable. `remote_key` is for the remote's `Idempotency-Key`."""

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
    """The response of a call, from this attempt or from the record."""

    response: Json
    idempotency_key: str
    is_replayed: bool = False
    """Whether it was recorded by an earlier attempt, or before a pause."""
    is_inherited: bool = False
    """Whether it was recorded by the task that this task is a retry of."""
