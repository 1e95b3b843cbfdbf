"""The outcomes of an attempt. They are values: the runner decides them, the engine applies them."""

from typing import TYPE_CHECKING, Final

from agent.core import plain_json
from agent.core.quick_classes.quick_dataclasses import dataclass, field, replace
from agent.core.waits import ChildRequest, Signal, Timer, UnknownCall
from agent.steps.types.conversation import Exchange

if TYPE_CHECKING:
    from agent.steps.types.call_records import Intent
    from agent.steps.types.state_values import StateChange

Json = plain_json.Json

TRUNCATED: Final = "truncated"
"""The key by which a response says that it is larger than the limit and not whole."""


def exhausted(count: int) -> str:
    """Say that all attempts of a step were used."""
    return f"attempts exhausted: all {count} were used"


@dataclass(frozen=True, slots=True)
class StepError:
    """Why a step did not succeed: a code for programs, a class for policy, a message for people.

    `kind` is one of: `input` (the definition or its data), `remote` (the remote refused),
    `transport` (the remote was not reached), `timeout`, `limit`, `crash`, `unknown`, `code` (the
    user's function raised), `denied`, `child`, `internal`.
    """

    code: str
    kind: str
    message: str
    is_final: bool = False
    """Of a call: whether a retry is of no use."""
    command: str | None = None
    """The arguments of `agent` that go on from here, where `retry` would fail in the same way."""

    def of_last_attempt(self, count: int) -> "StepError":
        """Return this error as that of a step which has used all its attempts; of one attempt, as it is."""
        return self if count < 2 else replace(self, message=f"{exhausted(count)}; {self.message}")

    def document(self, attempt: int) -> dict[str, Json]:
        """Return the error as it is stored and shown."""
        document: dict[str, Json] = {
            "code": self.code,
            "class": self.kind,
            "message": self.message,
            "attempt": attempt,
        }
        if self.is_final:
            document["final"] = True
        if self.command is not None:
            document["command"] = self.command
        return document

    @classmethod
    def read(cls, document: dict[str, Json]) -> "StepError":
        """Return an error from its stored document."""
        return cls(
            str(document.get("code", "failed")),
            str(document.get("class", "remote")),
            str(document.get("message", "failed")),
            document.get("final") is True,
            document.get("command"),
        )


@dataclass(slots=True)
class Succeeded:
    """The step is done. `items` makes it a group whose items run next; `skipped` is why it did not run."""

    output: Json = None
    skipped: str | None = None
    items: list[Json] | None = None
    idempotency_key: str | None = None
    """The call whose result is this outcome (`http`, `shell`)."""
    large: str | None = None
    """The output as JSON, when it is stored apart from its step."""
    text: str | None = field(default=None, compare=False, repr=False)
    """The output as JSON, once the runner has checked it."""
    exchange: Exchange | None = None
    """The exchange for its conversation."""
    state: "StateChange | None" = field(default=None, compare=False)
    """The values for `state`, written in the transaction that settles it."""


@dataclass(frozen=True, slots=True)
class Retry:
    """The attempt failed, and another may follow; `delay_seconds` is the delay the remote asked for."""

    error: StepError
    delay_seconds: float | None = None
    is_unknown: bool = False
    """True when an effect of this attempt may have happened; otherwise it is a definite failure."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The step failed for good."""

    error: StepError
    idempotency_key: str | None = None


@dataclass(frozen=True, slots=True)
class WorkOffer:
    """Work for external workers, which the transaction that parks the step queues."""

    queue: str
    input_text: str
    """The rendered `with` as JSON, or a reference to it."""
    lease_seconds: float
    start_within_seconds: float
    timeout_seconds: float | None = None
    intent: "Intent | None" = None
    """The call that its beginning records; None where its result is nowhere but in the step."""
    is_effect: bool = False
    large: str | None = None
    """The rendered `with` as JSON, when it is stored apart from its row."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """The step waits, without a claim, a slot or a timeout.

    The transaction that settles this creates the row of a question and the task of a child. With
    `wake_at` the step is woken then at the latest.
    """

    on: "Timer | Signal | ChildRequest | UnknownCall | Question | WorkOffer"
    wake_at: int | None = None
    checkpoint: Json = None
    changed_request: dict[str, Json] | None = None
    """For an unknown call: the request that the step would send now, if it differs."""


@dataclass(frozen=True, slots=True)
class Paused:
    """The attempt stopped at a checkpoint because the task is being paused."""

    checkpoint: Json = None
    exhausted: str | None = None
    """The budget that pauses the task, as the reason that people see."""
    command: str | None = None
    """The arguments of `agent` that raise that budget."""


@dataclass(frozen=True, slots=True)
class Returned:
    """The attempt was returned unstarted or at a clean point, as when the worker shuts down."""

    reason: str = "shutdown"
    delay_seconds: float = 0.0


Outcome = Succeeded | Retry | Failed | Waiting | Paused | Returned


@dataclass(frozen=True, slots=True)
class Question:
    """A question to a person, as the outcome of an attempt carries it."""

    kind: str
    message: str
    request: Json
    """The full action: an answer counts for exactly this."""
    choices: list[Json] | None = None
    schema: dict[str, Json] | None = None
    editable: list[str] | None = None
    who: list[str] | None = None
    expires_seconds: float | None = None
    on_expiry: str = "fail"
    remind_seconds: float | None = None
