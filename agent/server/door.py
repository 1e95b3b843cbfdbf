"""The door: what every request passes before any route is looked up.

In this order: not too many at once; a host and an origin that are allowed, so that no web page and
no rebound name reaches the API through somebody's browser; a token; a body within bounds. Only
health, signed webhooks and signed answers need no token: signatures are checked by their routes, and
until then they may not take more than a part of what there is.
"""

import asyncio
import re
from collections.abc import Iterable
from typing import Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agent.config import ServerSettings
from agent.server.failures import Failures
from agent.server.problems import Problem, problem_of, retry_later
from agent.server.table import GRANT
from agent.server.tokens import Tokens

HEALTH: Final = frozenset({"/healthz", "/readyz"})
LINKS: Final = "/links/"
SIGNED: Final = ("/hooks/", LINKS)
ANSWERS: Final = "/answers"
"""Requests to these prove themselves by a signature, which their own routes check."""
BODY_SECONDS: Final = 30.0
"""How long the body of a request may take to come."""
_OWN_NAMES: Final = ("localhost", "127.0.0.1", "::1")
_HOST: Final = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9._-]+))(?::[0-9]*)?")
_ORIGIN: Final = re.compile(r"[a-z][a-z0-9+.-]*://(.*)")
_UNPROVEN_SHARE: Final = 4
"""Whoever has proved nothing yet has one place of so many."""


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
        self._max_unproven = max(1, settings.max_requests // _UNPROVEN_SHARE)
        self._inside = 0
        self._unproven = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request in, or answer it here."""
        if scope["type"] != "http":
            return
        try:
            self._check(scope)
        except Exception as error:
            await problem_of(error).response()(scope, receive, send)
            return
        is_unproven = GRANT not in scope
        if scope["method"] == "HEAD":
            # Whoever looks whether something is there: uvicorn leaves the body out.
            scope = {**scope, "method": "GET"}
        self._inside += 1
        self._unproven += is_unproven
        try:
            await self._app(scope, _Bounded(receive, self._max_body_bytes), send)
        finally:
            self._inside -= 1
            self._unproven -= is_unproven

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
        elif self._unproven >= self._max_unproven:
            raise retry_later(503, "overloaded", "too many requests without a token at once")
        self._check_length(headers)

    def _check_host(self, headers: Headers) -> None:
        given = headers.getlist("host")
        if len(given) != 1 or _host_name(given[0]) not in self._hosts:
            raise Problem(400, "foreign-host", "this host is not among allowed_hosts in [server]")

    def _check_origin(self, headers: Headers) -> None:
        origin = headers.get("origin")
        if origin is None or origin.lower() in self._origins:
            return
        own = _ORIGIN.fullmatch(origin.lower())
        if own is None or own[1] != headers["host"].lower():
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
    """A body that is counted as it arrives, and must have arrived in time.

    Its announced length may be missing or a lie, and a place is not held for who never ends.
    """

    def __init__(self, receive: Receive, most: int) -> None:
        self._receive = receive
        self._most = most
        self._received = 0
        self._give_up_at = asyncio.get_running_loop().time() + BODY_SECONDS
        self._is_whole = False

    async def __call__(self) -> Message:
        if self._is_whole:
            # What is waited for then is the client's leaving.
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._give_up_at):
                message = await self._receive()
        except TimeoutError:
            raise Problem(
                408, "too-slow", f"the body did not come within {BODY_SECONDS:g} seconds"
            ) from None
        self._is_whole = not message.get("more_body", False)
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
    """Return the name of a Host header, without its port; "" for what is no host."""
    found = _HOST.fullmatch(host.lower())
    return (found[1] or found[2]) if found else ""


def _names(given: Iterable[str]) -> frozenset[str]:
    return frozenset(name.lower().strip("[]").rstrip("/") for name in given)
