"""The responses to failures on the commit path, as one table: phase x cause -> response.

`Committer` applies the responses that stay inside it: proceed, reload, split, refuse a part, fail a step,
fetch a value, and retry of attempts that it loads. The others reach the worker's loop, where
`agent.tasks.worker.failures` applies them: retry after a pause, resend, enroll again, stop.
"""

from enum import StrEnum
from typing import Final

from agent.store.artifacts.artifact_rows import NotFetchedError
from agent.store.db.database import StoreError
from agent.store.db.dialect import TRANSIENT_FAULTS, Fault


class FencedError(Exception):
    """The worker was declared dead: other workers own its claims, and it must enroll again."""


class DroppedError(Exception):
    """The transaction had no effect, because one that was sent before it failed."""


class Phase(StrEnum):
    """Where on the commit path something failed."""

    ENROLL = "enroll"
    """Creating the row of a worker."""
    COMMIT = "commit"
    """The transaction of a batch: computing it, sending it, or waiting for its COMMIT."""
    PART = "part"
    """The transaction of one part of a batch that was split."""
    LOAD = "load"
    """Reading the inputs of all claimed attempts."""
    LOAD_ONE = "load one"
    """Reading the inputs of one claimed attempt."""
    POLL = "poll"
    """Reading or changing something outside the transaction of a batch."""


class Cause(StrEnum):
    """Why something failed, where it was not a fault of the database."""

    FENCED = "fenced"
    DROPPED = "dropped"
    CONFIRMED_LATE = "confirmed late"
    """The acknowledgement of a COMMIT was lost; the worker's row shows that it took effect."""
    NOT_FETCHED = "not fetched"
    """A value is in a store outside the database."""
    CODE = "code"
    """Any other exception: a record that cannot be read, or a defect."""


class Response(StrEnum):
    """The response to a failure."""

    PROCEED = "proceed"
    """Go on: the transaction is committed."""
    RELOAD = "reload"
    """Run the transaction again at once, from rows that it reads itself."""
    RESEND = "resend"
    """Send the batch again with the next transaction, without a pause."""
    RETRY = "retry"
    """Send the batch again after a pause. Of claimed attempts: load them with the next commit."""
    SPLIT = "split"
    """Handle each part by itself, so that a bad one costs only itself."""
    REFUSE = "refuse"
    """Give up this part, with the reason."""
    FAIL_STEP = "fail step"
    """Fail the step whose inputs cannot be read."""
    FETCH = "fetch"
    """Download the missing values, then load the attempt."""
    ENROLL = "enroll"
    """Take a new identity."""
    STOP = "stop"
    """End the worker: nothing gets better by itself."""


AnyCause = Fault | Cause

_PASSING: Final[dict[AnyCause, Response]] = dict.fromkeys(
    (*TRANSIENT_FAULTS, Fault.STALE, Fault.UNREACHABLE), Response.RETRY
)
_TERMINAL: Final[dict[AnyCause, Response]] = {
    Fault.READONLY: Response.STOP,
    Fault.CORRUPT: Response.STOP,
    Fault.REPLACED: Response.STOP,
}


def _own_fault(response: Response) -> dict[AnyCause, Response]:
    """Return the responses to causes that lie in the batch or the record itself, not in the database."""
    return dict.fromkeys((Fault.DATA, Fault.DEFECT, Cause.CODE), response)


# Loading ends no worker and gives up no claim for a fault of the database: the next commit meets the same
# fault, and its row of the table decides.
_KEEP_CLAIM: Final[dict[AnyCause, Response]] = _PASSING | dict.fromkeys(_TERMINAL, Response.RETRY)

RESPONSES: Final[dict[Phase, dict[AnyCause, Response]]] = {
    # A worker without a row has no work to lose: an error that a pause cannot fix ends it, with the message.
    Phase.ENROLL: _TERMINAL
    | dict.fromkeys(TRANSIENT_FAULTS, Response.RETRY)
    | dict.fromkeys(
        (Fault.DATA, Fault.DEFECT, Fault.STALE, Fault.UNREACHABLE, Cause.CODE), Response.STOP
    ),
    Phase.COMMIT: _PASSING
    | _TERMINAL
    | _own_fault(Response.SPLIT)
    | {
        Fault.STALE: Response.RELOAD,
        Cause.FENCED: Response.ENROLL,
        Cause.DROPPED: Response.RESEND,
        Cause.CONFIRMED_LATE: Response.PROCEED,
    },
    Phase.PART: _PASSING
    | _TERMINAL
    | _own_fault(Response.REFUSE)
    | {Cause.FENCED: Response.ENROLL, Cause.CONFIRMED_LATE: Response.PROCEED},
    Phase.LOAD: _KEEP_CLAIM | _own_fault(Response.SPLIT) | {Cause.NOT_FETCHED: Response.SPLIT},
    Phase.LOAD_ONE: _KEEP_CLAIM
    | _own_fault(Response.FAIL_STEP)
    | {Cause.NOT_FETCHED: Response.FETCH},
    # A row that a poll cannot read belongs to one task, and must not end the worker of all others.
    Phase.POLL: _PASSING
    | _TERMINAL
    | {Fault.DATA: Response.RETRY, Fault.DEFECT: Response.RETRY, Cause.CODE: Response.STOP},
}

NEED_NEW_CONNECTION: Final = frozenset({Fault.LOST, Fault.CORRUPT})
"""Faults after which the connection is useless."""


def cause_of(error: Exception) -> AnyCause:
    """Return the cause of an error, as `RESPONSES` lists it."""
    if isinstance(error, StoreError):
        return error.fault
    if isinstance(error, FencedError):
        return Cause.FENCED
    if isinstance(error, DroppedError):
        return Cause.DROPPED
    return Cause.NOT_FETCHED if isinstance(error, NotFetchedError) else Cause.CODE


def response_to(phase: Phase, error: Exception) -> Response:
    """Return the response to an error."""
    return RESPONSES[phase][cause_of(error)]
