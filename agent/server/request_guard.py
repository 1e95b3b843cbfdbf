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

import structlog
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agent.config.settings import ServerSettings
from agent.core.log_limit import LogLimit
from agent.server.failed_auth_limiter import FailedAuthLimiter
from agent.server.problems import Problem, problem_of, retry_later
from agent.server.route_registry import GRANT, client_address
from agent.server.tokens import ExpiredError, Tokens

log = structlog.get_logger(__name__)

HEALTH: Final = frozenset({"/healthz", "/readyz"})
LINKS: Final = "/links/"
SIGNED: Final = ("/hooks/", LINKS)
ANSWERS: Final = "/answers"
"""Requests to these prove themselves by a signature, which their own routes check."""
BODY_SECONDS: Final = 30.0
"""How long the body of a request may take to come."""
UNPROVEN_BODY_SECONDS: Final = 10.0
"""How long it may take where the request has no token."""
_MOST_DIGITS: Final = 18
_SINGLE: Final = frozenset(
    {
        b"authorization",
        b"content-length",
        b"content-type",
        b"host",
        b"idempotency-key",
        b"last-event-id",
        b"origin",
        b"stripe-signature",
        b"svix-id",
        b"svix-signature",
        b"svix-timestamp",
        b"transfer-encoding",
        b"webhook-id",
        b"webhook-signature",
        b"webhook-timestamp",
        b"x-github-delivery",
        b"x-github-event",
        b"x-hub-signature-256",
        b"x-slack-request-timestamp",
        b"x-slack-signature",
        b"x-webhook-token",
    }
)
"""Headers that decide what a request may do: of two, which one counts would be a matter of taste."""
_OWN_NAMES: Final = ("localhost", "127.0.0.1", "::1")
_HOST: Final = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9._-]+))(?::[0-9]*)?")
_ORIGIN: Final = re.compile(r"[a-z][a-z0-9+.-]*://(.*)")
_UNPROVEN_SHARE: Final = 4
"""Whoever has proved nothing yet has one place of so many."""


class RequestGuard:
    """Refuses what must not come in."""

    def __init__(
        self,
        app: ASGIApp,
        settings: ServerSettings,
        tokens: Tokens,
        failed_auth_limiter: FailedAuthLimiter,
    ) -> None:
        self._app = app
        self._tokens = tokens
        self._failed_auth_limiter = failed_auth_limiter
        self._hosts = _names([*_OWN_NAMES, settings.host, *settings.allowed_hosts])
        self._origins = _names(settings.allowed_origins)
        self._max_body_bytes = settings.max_body_bytes
        self._max_requests = settings.max_requests
        self._max_unproven = max(1, settings.max_requests // _UNPROVEN_SHARE)
        self._refusals = LogLimit(most=10, window_seconds=60.0)
        self._inside: set[_Bounded] = set()
        self._unproven: dict[_Bounded, None] = {}
        """The bodies of requests without a token, the oldest first."""

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
        seconds = UNPROVEN_BODY_SECONDS if is_unproven else BODY_SECONDS
        body = _Bounded(receive, self._max_body_bytes, seconds)
        if scope["path"] in HEALTH:
            # They take no place: while the database hangs, those who ask for its health may be many.
            await self._app(scope, body, send)
            return
        if is_unproven:
            self._unproven[body] = None
        self._inside.add(body)
        try:
            await self._app(scope, body, send)
        finally:
            self._inside.discard(body)
            self._unproven.pop(body, None)

    def _check(self, scope: Scope) -> None:
        path: str = scope["path"]
        if path in HEALTH:
            return
        if len(self._inside) >= self._max_requests:
            raise retry_later(503, "overloaded", "too many requests are being answered")
        headers = Headers(scope=scope)
        _check_single(scope)
        self._check_host(headers)
        # A link's address is the secret; its page lets browsers tell nobody where a form comes from.
        if not path.startswith(LINKS):
            self._check_origin(headers)
        if not path.startswith(SIGNED) and path != ANSWERS:
            scope[GRANT] = self._grant(scope, headers)
        elif len(self._unproven) >= self._max_unproven and not self._make_room():
            raise retry_later(503, "overloaded", "too many requests without a token at once")
        self._check_length(headers)

    def _make_room(self) -> bool:
        """End the oldest request without a token whose body is still to come; say if there is one.

        A body usually comes with its head. A client that holds its body back must not keep honest
        webhooks out.
        """
        half_sent = next((body for body in self._unproven if not body.is_whole), None)
        if half_sent is None:
            return False
        # At once, and not when it has ended: a burst must not fill the places of others.
        del self._unproven[half_sent]
        self._inside.discard(half_sent)
        half_sent.give_up()
        return True

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
        slug = "unauthorized"
        refusal = (
            "give a token: `Authorization: Bearer …`; the owner's is in the agent's home directory"
        )
        challenge = 'Bearer realm="agent"'
        try:
            found = self._tokens.grant_of(token.strip()) if word.lower() == "bearer" else None
            if found is not None:
                return found
        except ExpiredError as error:
            slug, refusal = "expired", str(error)
            challenge += ', error="invalid_token", error_description="expired"'
        self._log_refusal(scope, slug, is_given=bool(token))
        wait = self._failed_auth_limiter.add(client_address(scope))
        if wait > 0:
            raise retry_later(429, "too-many", "too many requests without a valid token", wait)
        raise Problem(401, slug, refusal, headers={"WWW-Authenticate": challenge})

    def _log_refusal(self, scope: Scope, reason: str, *, is_given: bool) -> None:
        """Log a failed login, without what was given and not without a bound."""
        held_back = self._refusals.admit()
        if held_back is not None:
            log.warning(
                "api.login_refused",
                reason=reason if is_given else "no token",
                address=client_address(scope),
                path=scope["path"][:200],
                held_back=held_back,
            )

    def _check_length(self, headers: Headers) -> None:
        length = headers.get("content-length", "0")
        is_number = length.isascii() and length.isdigit()
        if is_number and (len(length) > _MOST_DIGITS or int(length) > self._max_body_bytes):
            raise _too_large(self._max_body_bytes)


class _Bounded:
    """A body that is counted as it arrives, and must have arrived in time.

    Its announced length may be missing or a lie, and a place is not held for who never ends.
    """

    def __init__(self, receive: Receive, most: int, seconds: float) -> None:
        self._receive = receive
        self._most = most
        self._received = 0
        self._seconds = seconds
        self._give_up_at = asyncio.get_running_loop().time() + seconds
        self._waiting: asyncio.Timeout | None = None
        self.is_whole = False

    def give_up(self) -> None:
        """Wait no longer for the rest of the body."""
        self._give_up_at = asyncio.get_running_loop().time()
        if self._waiting is not None:
            self._waiting.reschedule(self._give_up_at)

    async def __call__(self) -> Message:
        if self.is_whole:
            # What is waited for then is the client's leaving.
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._give_up_at) as self._waiting:
                message = await self._receive()
        except TimeoutError:
            raise Problem(
                408, "too-slow", f"the body did not come within {self._seconds:g} seconds"
            ) from None
        finally:
            self._waiting = None
        self.is_whole = not message.get("more_body", False)
        self._received += len(message.get("body", b""))
        if self._received > self._most:
            raise _too_large(self._most)
        return message


def _check_single(scope: Scope) -> None:
    """Refuse a request that gives a header twice which may be there once."""
    seen = set()
    for name, _ in scope["headers"]:
        if name in _SINGLE:
            if name in seen:
                raise Problem(400, "bad-request", f"the header {name.decode()} is there twice")
            seen.add(name)


def _too_large(most: int) -> Problem:
    return Problem(413, "too-large", f"a body may have at most {most:,} bytes")


def _host_name(host: str) -> str:
    """Return the name of a Host header, without its port; "" for what is no host."""
    found = _HOST.fullmatch(host.lower())
    return (found[1] or found[2]) if found else ""


def _names(given: Iterable[str]) -> frozenset[str]:
    return frozenset(name.lower().strip("[]").rstrip("/") for name in given)
