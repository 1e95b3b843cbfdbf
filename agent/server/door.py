"""The door: what every request passes before any route is looked up.

In this order: not too many at once; a host and an origin that are allowed, so that no web page and
no rebound name reaches the API through somebody's browser; a token; a body within bounds. Only
health, signed webhooks and signed answers need no token: signatures are checked by their routes.
"""

from collections.abc import Iterable
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agent.config import ServerSettings
from agent.server.failures import Failures
from agent.server.problems import Problem, retry_later
from agent.server.table import GRANT
from agent.server.tokens import Tokens

HEALTH: Final = frozenset({"/healthz", "/readyz"})
LINKS: Final = "/links/"
SIGNED: Final = ("/hooks/", LINKS)
ANSWERS: Final = "/answers"
"""Requests to these prove themselves by a signature, which their own routes check."""
_OWN_NAMES: Final = ("localhost", "127.0.0.1", "::1")


class Door:
    """Refuses what must not come in."""

    def __init__(
        self, app: ASGIApp, settings: ServerSettings, tokens: Tokens, failures: Failures
    ) -> None:
        self._app = app
        self._tokens = tokens
        self._failures = failures
        self._hosts = _names([*_OWN_NAMES, settings.host, *settings.allowed_hosts])
        self._origins = _names(settings.allowed_origins)
        self._max_body_bytes = settings.max_body_bytes
        self._max_requests = settings.max_requests
        self._inside = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request in, or answer it here."""
        if scope["type"] != "http":
            return
        try:
            self._check(scope)
        except Problem as problem:
            await problem.response()(scope, receive, send)
            return
        self._inside += 1
        try:
            await self._app(scope, _Bounded(receive, self._max_body_bytes), send)
        finally:
            self._inside -= 1

    def _check(self, scope: Scope) -> None:
        path: str = scope["path"]
        if path in HEALTH:
            return
        if self._inside >= self._max_requests:
            raise retry_later(503, "overloaded", "too many requests are being answered")
        headers = Headers(scope=scope)
        self._check_host(headers)
        # A link's address is the secret; its page lets browsers tell nobody where a form comes from.
        if not path.startswith(LINKS):
            self._check_origin(headers)
        if not path.startswith(SIGNED) and path != ANSWERS:
            scope[GRANT] = self._grant(scope, headers)
        self._check_length(headers)

    def _check_host(self, headers: Headers) -> None:
        host = headers.get("host", "")
        if _host_name(host) not in self._hosts:
            raise Problem(400, "foreign-host", "this host is not among allowed_hosts in [server]")

    def _check_origin(self, headers: Headers) -> None:
        origin = headers.get("origin")
        if origin is None or origin.lower() in self._origins:
            return
        if urlsplit(origin).netloc.lower() != headers.get("host", "").lower():
            raise Problem(
                403, "foreign-host", "this origin is not among allowed_origins in [server]"
            )

    def _grant(self, scope: Scope, headers: Headers) -> object:
        word, _, token = headers.get("authorization", "").partition(" ")
        found = self._tokens.grant_of(token.strip()) if word.lower() == "bearer" else None
        if found is not None:
            return found
        wait = self._failures.add(client_address(scope))
        if wait > 0:
            raise retry_later(429, "too-many", "too many requests without a valid token", wait)
        raise Problem(
            401,
            "unauthorized",
            "give a token: `Authorization: Bearer …`; the owner's is in the agent's home directory",
            headers={"WWW-Authenticate": 'Bearer realm="agent"'},
        )

    def _check_length(self, headers: Headers) -> None:
        length = headers.get("content-length", "0")
        if length.isdigit() and int(length) > self._max_body_bytes:
            raise _too_large(self._max_body_bytes)


class _Bounded:
    """A body that is counted as it arrives: its announced length may be missing or a lie."""

    def __init__(self, receive: Receive, most: int) -> None:
        self._receive = receive
        self._most = most
        self._received = 0

    async def __call__(self) -> Message:
        message = await self._receive()
        self._received += len(message.get("body", b""))
        if self._received > self._most:
            raise _too_large(self._most)
        return message


def client_address(scope: Scope) -> str:
    """Return where a request comes from."""
    client = scope.get("client")
    return str(client[0]) if client else ""


def _too_large(most: int) -> Problem:
    return Problem(413, "too-large", f"a body may have at most {most:,} bytes")


def _host_name(host: str) -> str:
    """Return the name of a Host header, without its port."""
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


def _names(given: Iterable[str]) -> frozenset[str]:
    return frozenset(name.lower().strip("[]").rstrip("/") for name in given)
