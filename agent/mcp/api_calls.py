"""Requests to the HTTP API that tools make: in this process, or to an agent at an address."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

import httpx
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as AsgiScope

from agent.approvals import permission
from agent.approvals.permission import Principal
from agent.core.scopes import Scope
from agent.server.access.grants import TokenGrant
from agent.server.problems import revoked
from agent.server.requests.route_registry import GRANT

CHANNEL: Final = "mcp"
"""Where answers to questions come from, as their `who` names it."""
_SPARE_SECONDS: Final = 60.0
"""How much longer than its own wait a request may take; a claim of work waits for up to 30."""

NeededScope = Scope | Literal["work"]
"""The scope that a tool needs; `work` is the scope of any queue."""


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """One request to a route."""

    method: str
    path: str
    query: Mapping[str, Any] = field(default_factory=dict)
    body: Any = None
    has_body: bool = False
    headers: Mapping[str, str] = field(default_factory=dict)
    wait_seconds: float = 0.0
    """How long the route itself may wait."""


class ApiError(Exception):
    """The API refused a request, or does not answer; the message says what to do."""

    def __init__(self, status: int, document: Mapping[str, Any]) -> None:
        super().__init__(_text(document))
        self.status = status
        self.document = document


class Api:
    """The routes, as one caller may use them."""

    def __init__(self, client: httpx.AsyncClient, principal: Principal) -> None:
        self._client = client
        self._principal = principal
        self.notice: Callable[[], str | None] = lambda: None
        """Returns a remark on an open task if no process runs it."""

    def allows(self, scope: NeededScope) -> bool:
        """Whether the caller may use routes of a scope."""
        try:
            self.require(scope, "this")
        except ApiError:
            return False
        return True

    def require(self, scope: NeededScope, what: str) -> None:
        """Raise `ApiError` unless the caller has a scope; an agent at an address decides as well."""
        try:
            if scope == "work":
                permission.check_worker(self._principal)
            else:
                permission.check_scope(self._principal, scope, what)
        except permission.NotAllowedError as error:
            needs = "work:QUEUE" if scope == "work" else scope
            problem = {"type": "forbidden", "detail": str(error), "needs": needs}
            raise ApiError(403, problem) from None

    async def call(self, request: ApiRequest) -> Any:
        """Send a request and return the document of its response; raise `ApiError`."""
        if not {".", ".."}.isdisjoint(request.path.split("/")):
            # HTTP clients leave such parts out: the address would be another one.
            raise ApiError(404, {"type": "not-found", "detail": "nothing is called . or .."})
        headers = dict(request.headers)
        content = None
        if request.has_body:
            content = json.dumps(request.body, ensure_ascii=False).encode(errors="replace")
            headers["Content-Type"] = "application/json"
        try:
            response = await self._client.request(
                request.method,
                request.path,
                params=_query(request.query),
                content=content,
                headers=headers,
                timeout=request.wait_seconds + _SPARE_SECONDS,
            )
        except httpx.TransportError as error:
            raise ApiError(503, _unreachable(self._client, error)) from None
        if response.is_success:
            return response.json() if response.content else {}
        if response.headers.get("content-type") != "application/problem+json":
            raise ApiError(response.status_code, _foreign(self._client, response))
        raise ApiError(response.status_code, response.json())


def in_process(
    app: ASGIApp,
    grant: TokenGrant,
    address: tuple[str, int] | None,
    holds: Callable[[], bool] = lambda: True,
) -> Api:
    """Return the routes of an application in this process, for a caller that is known already.

    `holds` tells before each request whether the caller's token is still valid: a call of a tool may wait.
    """
    caller = replace(grant, channel=CHANNEL)

    async def granted(scope: AsgiScope, receive: Receive, send: Send) -> None:
        if not holds():
            await revoked().response()(scope, receive, send)
            return
        await app({**scope, GRANT: caller}, receive, send)

    transport = httpx.ASGITransport(granted, client=address or ("", 0))
    client = httpx.AsyncClient(transport=transport, base_url="http://agent")
    return Api(client, caller.principal)


def at_address(url: str, token: str, principal: Principal, *, is_here: bool) -> Api:
    """Return the routes of an agent at an address; the caller may use those of its scopes."""
    client = httpx.AsyncClient(
        base_url=url,
        headers={"Authorization": f"Bearer {token}"},
        verify=url.startswith("https:"),
        trust_env=not is_here,
    )
    return Api(client, principal)


def _query(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a query as texts; a list repeats its parameter."""
    return {
        name: [_word(item) for item in value] if isinstance(value, list) else _word(value)
        for name, value in values.items()
        if value is not None
    }


def _word(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


_ADVICE: Final = {
    "not-found": "the tools that list things show which there are",
    "unauthorized": "the agent does not accept this token; `agent token create` makes one",
    "expired": "`agent token create` makes another",
    "overloaded": "try again in a few seconds",
    "unavailable": "try again in a few seconds",
    "too-many": "try again in a few seconds",
    "stopping": "try again when the agent runs again",
    "lease-lost": "stop this work; claim_work gets other work",
    "key-reused": "use another key, or the same arguments",
}
"""Advice for problems whose own text has none."""


def _text(document: Mapping[str, Any]) -> str:
    """Return a problem in words, with advice."""
    slug = str(document.get("type", "")).rpartition(":")[2]
    detail = str(document.get("detail", "the agent gave no reason"))
    if slug == "forbidden" and document.get("needs"):
        advice = (
            f"use a token with that scope (`agent token create NAME --scope {document['needs']}`),"
            f" or `agent mcp --scope {document['needs']}`"
        )
    else:
        advice = _ADVICE.get(slug, "")
    return f"{detail}; {advice}" if advice else detail


def _unreachable(client: httpx.AsyncClient, error: httpx.TransportError) -> dict[str, Any]:
    return {"detail": f"the agent at {client.base_url} does not answer: {error}; is it running?"}


def _foreign(client: httpx.AsyncClient, response: httpx.Response) -> dict[str, Any]:
    return {
        "detail": f"the server at {client.base_url} is not an agent: it answered {response.status_code}"
    }
