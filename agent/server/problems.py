"""Errors as problem documents (RFC 9457): what was wrong, for a program and for a person."""

import json
import math
from collections.abc import Mapping
from typing import Any, Final

import structlog
from fastapi.exceptions import HTTPException, RequestValidationError
from starlette.exceptions import HTTPException as PlainHttpError
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from agent.approvals.answering import DecidedError, InvalidAnswerError
from agent.approvals.permission import NotAllowedError
from agent.store.db.database import StoreError
from agent.store.db.dialect import Fault
from agent.store.db.json_values import NotPlainJsonError
from agent.tasks.errors import NotFoundError, RefusedError
from agent.tasks.read_models.task_documents import AmbiguousIdError
from agent.tasks.submission import TooManyStepsError
from agent.workflows.compile.inputs import InputError
from agent.workflows.diagnostics import WorkflowError

log = structlog.get_logger(__name__)

MEDIA_TYPE: Final = "application/problem+json"
TITLES: Final = {
    "about:blank": "Error",
    "bad-request": "The request cannot be read",
    "unauthorized": "A valid token is needed",
    "expired": "The token's time is over",
    "bad-signature": "The signature does not fit",
    "forbidden": "The token does not allow this",
    "foreign-host": "The host or the origin is not allowed",
    "not-found": "There is no such thing",
    "not-allowed": "The method is not allowed here",
    "refused": "Not allowed in this state",
    "decided": "It was decided before",
    "read-only": "The workflow lives in a file",
    "too-large": "The body is too large",
    "too-slow": "The body did not come in time",
    "unsupported": "The body is of a kind that is not taken here",
    "invalid": "The request is not valid",
    "key-reused": "The key was used for another request",
    "too-many": "Too many requests",
    "overloaded": "The agent has too much to do",
    "unavailable": "It cannot be done at the moment",
    "stopping": "The agent is stopping",
    "defect": "An internal error",
}


class Problem(HTTPException):
    """An answer that says what is wrong; `slug` names the kind of problem and never changes."""

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
        """Return the answer."""
        text = json.dumps(self.document(), ensure_ascii=False, default=str)
        return Response(
            text.encode("utf-8", errors="replace"),
            self.status_code,
            headers=dict(self.headers or {}),
            media_type=MEDIA_TYPE,
        )


def retry_later(status: int, slug: str, detail: str, seconds: float = 1.0) -> Problem:
    """Return the refusal of a request that may succeed in a while."""
    return Problem(status, slug, detail, headers={"Retry-After": str(max(1, math.ceil(seconds)))})


def unsupported(wanted: str) -> Problem:
    """Return the refusal of a body by what it says it is."""
    return Problem(415, "unsupported", f"Content-Type must be {wanted}")


def problem_of(error: Exception) -> Problem:
    """Return the problem that an error is; what nobody expected tells nothing and is logged."""
    match error:
        case Problem():
            return error
        case NotFoundError():
            return Problem(404, "not-found", str(error))
        case NotAllowedError():
            return Problem(403, "forbidden", str(error))
        case InvalidAnswerError():
            return Problem(422, "invalid", str(error), errors=[str(error)])
        case DecidedError():
            row = error.row
            told = {"status": row.status, "by": row.decided_by, "channel": row.decided_channel}
            return Problem(409, "decided", str(error), decided=told, renewed_as=error.renewed_as)
        case AmbiguousIdError() | RefusedError():
            return Problem(409, "refused", str(error))
        case InputError():
            return Problem(422, "invalid", str(error), errors=error.problems)
        case WorkflowError():
            found = [problem.document() for problem in error.problems]
            return Problem(422, "invalid", str(error), errors=found)
        case NotPlainJsonError() | TooManyStepsError():
            return Problem(422, "invalid", str(error), errors=[str(error)])
        case RequestValidationError():
            return _invalid(error)
        case PlainHttpError():
            return _plain(error)
        case ClientDisconnect():
            return Problem(400, "bad-request", "the client left before its request was complete")
        case StoreError(fault=Fault.DATA):
            return Problem(422, "invalid", error.message, errors=[error.message])
        case StoreError(fault=Fault.UNREACHABLE):
            log.warning("api.unavailable", fault=str(error.fault), error=error.message)
            return retry_later(
                503, "unavailable", "value unavailable: its store is unreachable at the moment", 5
            )
        case StoreError(
            fault=Fault.BUSY | Fault.LOST | Fault.FULL | Fault.READONLY | Fault.REPLACED
        ):
            log.warning("api.unavailable", fault=str(error.fault), error=error.message)
            return retry_later(503, "unavailable", "the database cannot be used at the moment", 5)
    log.error("api.defect", error=str(error), exc_info=error)
    return Problem(500, "defect", "the agent's log says more")


def _invalid(error: RequestValidationError) -> Problem:
    found = []
    for each in error.errors():
        place = [str(part) for part in each["loc"] if part != "body"]
        found.append(f"{'.'.join(place)}: {each['msg']}" if place else str(each["msg"]))
    return Problem(422, "invalid", "; ".join(found), errors=found)


def _plain(error: PlainHttpError) -> Problem:
    """Return the problem that the router or the parser found."""
    slug, detail = {
        404: ("not-found", "there is nothing at this address"),
        405: ("not-allowed", "this address does not take that method"),
        413: ("too-large", str(error.detail)),
    }.get(error.status_code, ("bad-request", str(error.detail)))
    status = error.status_code if error.status_code in (404, 405, 413) else 400
    return Problem(status, slug, detail, headers=error.headers)
