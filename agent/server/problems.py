"""Errors as problem documents (RFC 9457), for programs and for people."""

import json
import math
import traceback
from collections.abc import Callable, Mapping
from typing import Any, Final

import structlog
from fastapi.exceptions import HTTPException, RequestValidationError
from starlette.exceptions import HTTPException as PlainHttpError
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from agent.approvals.answering import DecidedError, InvalidAnswerError
from agent.approvals.permission import NotAllowedError
from agent.core.logs.log_limit import LogLimit
from agent.core.thread_bridge import LoopEndedError
from agent.store.db.database import StoreError
from agent.store.db.dialect import Fault
from agent.store.db.json_values import NotPlainJsonError
from agent.tasks.errors import LeaseLostError, NotFoundError, RefusedError
from agent.tasks.read_models.task_documents import AmbiguousIdError
from agent.tasks.submission import TooManyStepsError
from agent.triggers.commands.command_request import InvalidTimeError
from agent.triggers.documents import InvalidCursorError
from agent.workflows.compile.inputs import InputError
from agent.workflows.diagnostics import WorkflowError

log = structlog.get_logger(__name__)

_strangers = LogLimit(most=10, window_seconds=60.0)
_troubles = LogLimit(most=10, window_seconds=60.0)

MEDIA_TYPE: Final = "application/problem+json"
TITLES: Final = {
    "about:blank": "Error",
    "bad-request": "The request cannot be parsed",
    "unauthorized": "A valid token is needed",
    "expired": "The token has expired",
    "bad-signature": "The signature is not valid",
    "forbidden": "The token does not allow this",
    "foreign-host": "The host or the origin is not allowed",
    "not-found": "Not found",
    "not-allowed": "The method is not allowed here",
    "refused": "Not allowed in this state",
    "decided": "The question was already decided",
    "lease-lost": "The lease is not valid",
    "read-only": "The workflow is defined in a file",
    "too-large": "The body is too large",
    "too-slow": "The body did not arrive in time",
    "unsupported": "The content type of the body is not supported",
    "invalid": "The request is not valid",
    "key-reused": "The key was already used for another request",
    "too-many": "Too many requests",
    "overloaded": "The agent is overloaded",
    "unavailable": "Not available at the moment",
    "stopping": "The agent is stopping",
    "not-installed": "A library is missing",
    "defect": "An internal error",
}


class Problem(HTTPException):
    """A response with a problem; `slug` names its type and never changes."""

    def __init__(
        self,
        status: int,
        slug: str,
        detail: str,
        *,
        headers: Mapping[str, str] | None = None,
        **members: Any,
    ) -> None:
        super().__init__(status, detail, headers=dict(headers or {}))
        self.slug = slug
        self.members = members

    def document(self) -> dict[str, Any]:
        """Return the problem document."""
        return {
            "type": f"urn:agent:problem:{self.slug}",
            "title": TITLES[self.slug],
            "status": self.status_code,
            "detail": self.detail,
            **self.members,
        }

    def response(self) -> Response:
        """Return the response."""
        text = json.dumps(self.document(), ensure_ascii=False, default=str)
        return Response(
            text.encode("utf-8", errors="replace"),
            self.status_code,
            headers=dict(self.headers or {}),
            media_type=MEDIA_TYPE,
        )


def retry_later(status: int, slug: str, detail: str, seconds: float = 1.0) -> Problem:
    """Return the problem for a request that may succeed later."""
    return Problem(status, slug, detail, headers={"Retry-After": str(max(1, math.ceil(seconds)))})


def revoked() -> Problem:
    """Return the problem for a request whose token was revoked while it waited."""
    return Problem(401, "unauthorized", "the token was revoked, or has expired, while this waited")


def unsupported(expected: str) -> Problem:
    """Return the problem for a body of another content type."""
    return Problem(415, "unsupported", f"Content-Type must be {expected}")


def problem_of(error: Exception, *, stranger: str | None = None) -> Problem:
    """Return the problem for an error; an unexpected one is logged and its message not shown.

    `stranger` is the address of a caller without a token, whose requests must not fill the log.
    """
    for kind in type(error).__mro__:
        if kind in _PROBLEMS:
            return _PROBLEMS[kind](error)
    return _defect(error, stranger)


def _defect(error: Exception, stranger: str | None = None) -> Problem:
    if stranger is None:
        log.error("api.defect", error=str(error), exc_info=error)
    else:
        log_stranger("api.defect", stranger, error)
    return Problem(500, "defect", "the agent's log says more")


def log_stranger(event: str, address: str, error: BaseException) -> None:
    """Log an error that a caller without a token has caused: on one line, at a limited rate."""
    held_back = _strangers.admit(address)
    if held_back is not None:
        last = traceback.extract_tb(error.__traceback__)[-1:]
        place = "".join(f"{frame.filename}:{frame.lineno}" for frame in last)
        log.error(event, error=repr(error)[:500], place=place, address=address, held_back=held_back)


def _refused(error: Exception) -> Problem:
    return Problem(409, "refused", str(error))


def _unacceptable(error: Exception) -> Problem:
    return Problem(422, "invalid", str(error), errors=[str(error)])


def _decided(error: DecidedError) -> Problem:
    row = error.row
    decision = {"status": row.status, "by": row.decided_by, "channel": row.decided_channel}
    return Problem(409, "decided", str(error), decided=decision, renewed_as=error.renewed_as)


def _invalid_workflow(error: WorkflowError) -> Problem:
    errors = [problem.document() for problem in error.problems]
    return Problem(422, "invalid", str(error), errors=errors)


def _invalid_request(error: RequestValidationError) -> Problem:
    errors = []
    for part in error.errors():
        location = [str(key) for key in part["loc"] if key != "body"]
        errors.append(f"{'.'.join(location)}: {part['msg']}" if location else str(part["msg"]))
    return Problem(422, "invalid", "; ".join(errors), errors=errors)


def _store_problem(error: StoreError) -> Problem:
    match error.fault:
        case Fault.DATA:
            return Problem(422, "invalid", error.message, errors=[error.message])
        case Fault.UNREACHABLE:
            detail = "value unavailable: its store is unreachable at the moment"
        case Fault.BUSY | Fault.LOST | Fault.FULL | Fault.READONLY | Fault.REPLACED | Fault.CORRUPT:
            detail = "the database cannot be used at the moment"
        case _:
            return _defect(error)
    held_back = _troubles.admit()
    if held_back is not None:
        fault = str(error.fault)
        log.warning("api.unavailable", fault=fault, error=error.message, held_back=held_back)
    return retry_later(503, "unavailable", detail, 5)


def _plain(error: PlainHttpError) -> Problem:
    """Return the problem for an error of the router or the parser."""
    slug, detail = {
        404: ("not-found", "there is nothing at this address"),
        405: ("not-allowed", "this address does not support that method"),
        413: ("too-large", str(error.detail)),
    }.get(error.status_code, ("bad-request", str(error.detail)))
    status = error.status_code if error.status_code in (404, 405, 413) else 400
    return Problem(status, slug, detail, headers=error.headers)


_PROBLEMS: Final[dict[type, Callable[[Any], Problem]]] = {
    Problem: lambda error: error,
    NotFoundError: lambda error: Problem(404, "not-found", str(error)),
    NotAllowedError: lambda error: Problem(403, "forbidden", str(error)),
    LeaseLostError: lambda error: Problem(410, "lease-lost", str(error), reason=error.reason),
    DecidedError: _decided,
    AmbiguousIdError: _refused,
    RefusedError: _refused,
    InvalidAnswerError: _unacceptable,
    InvalidCursorError: _unacceptable,
    InvalidTimeError: _unacceptable,
    NotPlainJsonError: _unacceptable,
    TooManyStepsError: _unacceptable,
    InputError: lambda error: Problem(422, "invalid", str(error), errors=error.problems),
    WorkflowError: _invalid_workflow,
    RequestValidationError: _invalid_request,
    PlainHttpError: _plain,
    ClientDisconnect: lambda _: Problem(
        400, "bad-request", "the client disconnected before its request was complete"
    ),
    StoreError: _store_problem,
    LoopEndedError: lambda _: retry_later(
        503, "stopping", "the agent has stopped meanwhile: whether this was done is not known", 5
    ),
}
"""Errors that a caller can cause or that pass, by class."""
