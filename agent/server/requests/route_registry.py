"""Routes and the checks before each: none can be registered without a scope."""

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from functools import cache
from http import HTTPStatus
from typing import Any, Final, Literal

import structlog
from fastapi import FastAPI
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Send
from starlette.types import Scope as AsgiScope

from agent.approvals import permission
from agent.core.logs import audit
from agent.core.logs.log_limit import LogLimit
from agent.core.scopes import Scope
from agent.server.access.grants import TokenGrant
from agent.server.problems import MEDIA_TYPE, Problem, problem_of, unsupported
from agent.server.requests.request_args import RequestArgs
from agent.server.schemas.problems import ProblemDocument

log = structlog.get_logger(__name__)

PREFIX: Final = "/api/v1"
GRANT: Final = "agent.grant"
"""The key in a request's ASGI scope under which the guard puts the token's grant."""

_AUDITED: Final = "agent.audited"

Method = Literal["GET", "POST", "DELETE"]
Public = Literal["public"]
Work = Literal["work"]
"""Any scope of a queue; the route checks the queue itself."""
Required = Scope | Public | Work
Function = Callable[..., Awaitable[Response]]
Refusal = Callable[[Request, Problem], Response]

_refusals = LogLimit(most=10, window_seconds=60.0)

_ALWAYS: Final = {
    400: "The request cannot be parsed, or its host is not allowed",
    401: "No valid token",
    403: "The token's scopes do not allow it, or the origin is not allowed",
    408: "The body did not arrive in time",
    413: "The body is too large",
    422: "The request is not valid; `errors` lists every problem",
    429: "Too many failures or too many new tasks; `Retry-After` says when to try again",
    500: "An internal error",
    503: "Overloaded, stopping, or without its database; `Retry-After` says when to try again",
}


def _as_document(_: Request, problem: Problem) -> Response:
    return problem.response()


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One route."""

    method: Method
    path: str
    scope: Required
    function: Function
    options: dict[str, Any] = field(default_factory=dict)
    refuse: Refusal = _as_document
    """Makes the response to a request that is refused or fails."""


OPERATION_IDS: Final = {
    "pause": "pause_task",
    "resume": "resume_task",
    "cancel": "cancel_task",
    "retry": "retry_task",
    "fork": "fork_task",
    "signal": "signal_task",
    "resolve": "resolve_step",
    "read_logs": "read_step_logs",
    "read_all_logs": "read_task_logs",
    "read_calls": "read_step_calls",
    "list_calls": "list_task_calls",
    "get_day": "get_day_budget",
    "get_budget": "get_task_budget",
    "set_budget": "set_task_budget",
    "approve": "approve_approval",
    "deny": "deny_approval",
    "give": "answer_approval",
    "defer": "defer_approval",
    "deliver": "deliver_webhook",
    "openapi": "get_openapi",
    "healthz": "get_health",
    "readyz": "get_readiness",
    "metrics": "get_metrics",
}
"""The names of operations in generated clients, where the function's name alone does not say enough.

They are part of the API: a client that was generated before must still compile.
"""


class RouteRegistry:
    """The routes of one module."""

    refuse: Refusal = staticmethod(_as_document)

    def __init__(self, tag: str, prefix: str = PREFIX) -> None:
        self.endpoints: list[Endpoint] = []
        self._tag = tag
        self._prefix = prefix

    def route(
        self,
        method: Method,
        path: str,
        *,
        scope: Required,
        status: int = 200,
        returns: type[BaseModel] | None = None,
        refuses: dict[int, str] | None = None,
        **options: Any,
    ) -> Callable[[Function], Function]:
        """Register a route; `returns` and `refuses` document its responses."""

        def add(function: Function) -> Function:
            problems = _ALWAYS | (refuses or {})
            options["responses"] = {
                number: problem_response(text) for number, text in sorted(problems.items())
            } | options.get("responses", {})
            options.setdefault(
                "operation_id", OPERATION_IDS.get(function.__name__, function.__name__)
            )
            options.update(status_code=status, response_model=returns, tags=[self._tag])
            self.endpoints.append(
                Endpoint(method, self._prefix + path, scope, function, dict(options), self.refuse)
            )
            return function

        return add


def mount(app: FastAPI, registries: list[RouteRegistry]) -> None:
    """Add every registered route to an application that has none."""
    assert not app.routes
    for endpoint in (endpoint for registry in registries for endpoint in registry.endpoints):
        app.router.add_api_route(
            endpoint.path,
            endpoint.function,
            methods=[endpoint.method],
            route_class_override=_guarded(endpoint.scope, endpoint.refuse),
            **endpoint.options,
        )


@cache
def _guarded(scope: Required, refuse: Refusal) -> type[APIRoute]:
    """Return the class of routes that need a scope; it is checked before the body is read."""

    class Guarded(APIRoute):
        required = scope

        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            answer = self.get_route_handler()

            # FastAPI's own prepares for dependencies and for errors. There are no dependencies, and
            # `answer` turns errors into responses. It would take a tenth of a short request.
            async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
                response = await answer(Request(scope, receive, send))
                await response(scope, receive, send)

            self.app = app

        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            read_args, endpoint = RequestArgs(self.dependant), self.endpoint
            takes_json = self.body_field is not None

            # Calls of workers are in the log of events.
            is_audited = scope not in ("public", "work") and "GET" not in (self.methods or ())

            async def answer(request: Request) -> Response:
                try:
                    _check(request, scope)
                    if takes_json:
                        _check_media(request)
                    response: Response = await endpoint(**await read_args(request))
                except Exception as error:
                    problem = problem_in(request.scope, error)
                    if is_audited:
                        is_invalid = problem.slug == "invalid"
                        outcome = audit.INVALID if is_invalid else f"refused: {problem.detail}"
                        _audit(request, endpoint.__name__, outcome)
                    return refuse(request, problem)
                if is_audited:
                    # A page shows a refused form again instead of raising.
                    is_done = response.status_code < HTTPStatus.BAD_REQUEST
                    _audit(request, endpoint.__name__, "done" if is_done else audit.INVALID)
                return response

            return answer

    return Guarded


def _audit(request: Request, function: str, outcome: str) -> None:
    """Record a command in the audit log; a new task records its origin itself."""
    grant: TokenGrant | None = request.scope.get(GRANT)
    if function == "create_task" or grant is None:
        return
    audit.record(
        f"{grant.channel}:{grant.name}",
        client_address(request.scope),
        function.replace("_", " "),
        outcome,
        **{name.removesuffix("_id"): value for name, value in request.path_params.items()},
        **request.scope.get(_AUDITED, {}),
    )


def audit_more(request: Request, **facts: Any) -> None:
    """Add facts to the entry that the audit log gets of this request; those that are None are left out."""
    request.scope[_AUDITED] = {name: fact for name, fact in facts.items() if fact is not None}


def problem_in(scope: Mapping[str, Any], error: Exception) -> Problem:
    """Return the problem for an error in a request."""
    return problem_of(error, stranger=None if GRANT in scope else client_address(scope))


def client_address(scope: Mapping[str, Any]) -> str:
    """Return the address that a request comes from."""
    client = scope.get("client")
    return str(client[0]) if client else ""


def _check(request: Request, scope: Required) -> None:
    if scope == "public":
        return
    grant: TokenGrant | None = request.scope.get(GRANT)
    if grant is None:
        raise Problem(401, "unauthorized", "the request has no token")
    try:
        if scope == "work":
            permission.check_worker(grant.principal)
        else:
            permission.check_scope(grant.principal, scope, "this")
    except permission.NotAllowedError as error:
        held_back = _refusals.admit(client_address(request.scope))
        if held_back is not None:
            log.warning(
                "api.scope_refused",
                by=grant.name,
                address=client_address(request.scope),
                needs=scope,
                path=request.url.path,
                held_back=held_back,
            )
        raise Problem(403, "forbidden", str(error), needs=scope, token=grant.name) from None


def _check_media(request: Request) -> None:
    """Refuse a body that is not declared as JSON: web pages can send other types across origins."""
    headers = request.headers
    if headers.get("content-length", "0") == "0" and "transfer-encoding" not in headers:
        return
    media = headers.get("content-type", "").partition(";")[0].strip().lower()
    if media != "application/json" and not media.endswith("+json"):
        raise unsupported("application/json")


def problem_response(text: str) -> dict[str, Any]:
    """Return the description of a problem response."""
    schema = {"$ref": f"#/components/schemas/{ProblemDocument.__name__}"}
    return {"description": text, "content": {MEDIA_TYPE: {"schema": schema}}}
