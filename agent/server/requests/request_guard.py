"""The checks that every request passes before a route is looked up.

In this order: the number of requests in progress; an allowed host and origin, so that no web page
and no rebound DNS name reaches the API through a user's browser; a token, or a session's cookie for a
page; the size of the body. Only health, signed webhooks and signed answers need no token. Their
routes check the signatures; until then such requests share a part of the capacity.
"""

import asyncio
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final
from urllib.parse import urlsplit

import structlog
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agent.config.settings import ServerSettings
from agent.core.logs.log_limit import LogLimit
from agent.server.access.failed_auth_limiter import FailedAuthLimiter
from agent.server.access.grants import ExpiredError, TokenGrant
from agent.server.access.sessions import Sessions
from agent.server.access.tokens import Tokens
from agent.server.connections.header_limits import CONNECTION
from agent.server.problems import Problem, retry_later, revoked
from agent.server.requests.route_registry import GRANT, client_address, problem_in
from agent.server.token_shares import TokenShares

log = structlog.get_logger(__name__)

HEALTH: Final = frozenset({"/healthz", "/readyz"})
LINKS: Final = "/links/"
SIGNED_PREFIXES: Final = ("/hooks/", LINKS)
ANSWERS: Final = "/answers"
"""Requests to these carry a signature, which their own routes check."""
SECURE_PREFIX: Final = "__Host-"
"""Browsers accept a cookie of such a name only with `Secure`, and for no other host."""
BODY_SECONDS: Final = 30.0
"""How long the body of a request may take to arrive."""
TOKENLESS_BODY_SECONDS: Final = 10.0
"""The same for a request without a token."""
_MAX_LENGTH_DIGITS: Final = 18
_SINGLE_HEADERS: Final = frozenset(
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
"""Headers that decide permissions: with two of one it would be unclear which counts."""
_OWN_NAMES: Final = ("localhost", "127.0.0.1", "::1")
_HOST: Final = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9._-]+))(?::[0-9]*)?")
_ORIGIN: Final = re.compile(r"[a-z][a-z0-9+.-]*://(.*)")
_TOKENLESS_SHARE: Final = 4
"""Requests without a token get 1/n of the capacity."""


@dataclass(frozen=True, slots=True)
class PageAccess:
    """Which addresses are pages, and whose browser asks for them.

    A session's cookie counts for pages alone, a token for everything else. A page asked for without a
    session is refused by its own route, with a page that says how to sign in.
    """

    sessions: Sessions
    sections: frozenset[str]
    """The first parts of the paths of pages."""
    other_sections: frozenset[str]
    """The first parts of all other paths at which there is something."""
    cookie: str

    def has(self, path: str, headers: Headers) -> bool:
        """Whether an address is a page's, or a wrong one that a person has typed into a browser."""
        section = path.split("/", 2)[1]
        if section in self.sections:
            return True
        return section not in self.other_sections and "text/html" in headers.get("accept", "")

    def admit(self, scope: Scope, headers: Headers) -> bool:
        """Put the grant of a request's session into its scope; return whether there is one."""
        token = session_token(headers, self.cookie)
        grant = None
        if token:
            with suppress(ExpiredError):
                grant = self.sessions.grant_of(token)
        if grant is None:
            return False
        scope[GRANT] = grant
        return True


def session_token(headers: Headers, name: str) -> str:
    """Return the session's text in a request's cookies, or nothing."""
    # Not the standard library's parser: it stops at a malformed cookie of another program.
    cookies = dict(
        part.strip().partition("=")[::2]
        for header in headers.getlist("cookie")
        for part in header.split(";")
    )
    return cookies.get(SECURE_PREFIX + name) or cookies.get(name) or ""


class RequestGuard:
    """Refuses requests that are not allowed, and limits those in progress."""

    def __init__(
        self,
        app: ASGIApp,
        settings: ServerSettings,
        tokens: Tokens,
        failed_auth_limiter: FailedAuthLimiter,
        pages: PageAccess,
    ) -> None:
        self._app = app
        self._tokens = tokens
        self._pages = pages
        self._failed_auth_limiter = failed_auth_limiter
        public = urlsplit(settings.public_url).hostname or ""
        self._hosts = _names([*_OWN_NAMES, settings.host, *settings.allowed_hosts, public])
        self._hosts -= {""}
        self._origins = _names(settings.allowed_origins)
        self._max_body_bytes = settings.max_body_bytes
        self._max_requests = settings.max_requests
        self._max_tokenless = max(1, settings.max_requests // _TOKENLESS_SHARE)
        self._shares = TokenShares(settings.max_requests, "too many requests of this token at once")
        self._refusals = LogLimit(most=10, window_seconds=60.0)
        self._in_progress: set[_LimitedBody] = set()
        self._tokenless: dict[_LimitedBody, None] = {}
        """The bodies of requests without a token, the oldest first."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            return
        try:
            self._check(scope)
        except Exception as error:
            await problem_in(scope, error).response()(scope, receive, send)
            return
        is_tokenless = GRANT not in scope
        if scope["method"] == "HEAD":
            # Routes know only GET; uvicorn omits the body of a HEAD response.
            scope = {**scope, "method": "GET"}
        seconds = TOKENLESS_BODY_SECONDS if is_tokenless else BODY_SECONDS
        holds = partial(self._holds, scope.get(GRANT))
        body = _LimitedBody(receive, self._max_body_bytes, seconds, holds)
        if scope["path"] in HEALTH:
            # Health checks do not count: while the database hangs, many of them may wait.
            await self._app(scope, body, send)
            return
        self._in_progress.add(body)
        try:
            if is_tokenless:
                self._tokenless[body] = None
                await self._app(scope, body, send)
                return
            if CONNECTION in scope:
                scope[CONNECTION].know()
            with self._shares.taken(scope[GRANT]):
                await self._app(scope, body, send)
        finally:
            self._in_progress.discard(body)
            self._tokenless.pop(body, None)

    def _check(self, scope: Scope) -> None:
        path: str = scope["path"]
        if path in HEALTH:
            return
        if len(self._in_progress) >= self._max_requests:
            raise retry_later(503, "overloaded", "too many requests are being answered")
        if not path.startswith("/"):
            # `*`, which HTTP knows only for OPTIONS.
            raise Problem(400, "bad-request", "the address of a request must begin with /")
        headers = Headers(scope=scope)
        _check_single(scope)
        self._check_host(headers)
        # A link's address is the secret, and its page sends no referrer: the origin is then `null`.
        if not path.startswith(LINKS):
            self._check_origin(headers)
        is_public = path.startswith(SIGNED_PREFIXES) or path == ANSWERS
        if self._pages.has(path, headers):
            is_public = not self._pages.admit(scope, headers)
        elif not is_public:
            scope[GRANT] = self._grant(scope, headers)
        if GRANT in scope:
            self._shares.check(scope[GRANT])
        if is_public and len(self._tokenless) >= self._max_tokenless and not self._make_room():
            raise retry_later(503, "overloaded", "too many requests without a token at once")
        self._check_length(headers)

    def _make_room(self) -> bool:
        """Cancel the oldest tokenless request whose body is incomplete; return whether there was one.

        A body usually arrives with its headers. A client that withholds its body must not block
        legitimate webhooks.
        """
        incomplete = next((body for body in self._tokenless if not body.is_complete), None)
        if incomplete is None:
            return False
        # Freed at once, not when the request has ended: a burst may arrive before that.
        del self._tokenless[incomplete]
        self._in_progress.discard(incomplete)
        incomplete.give_up()
        return True

    def _check_host(self, headers: Headers) -> None:
        hosts = headers.getlist("host")
        if len(hosts) != 1 or _host_name(hosts[0]) not in self._hosts:
            raise Problem(400, "foreign-host", "this host is not among allowed_hosts in [server]")

    def _check_origin(self, headers: Headers) -> None:
        origin = headers.get("origin")
        if origin is None or origin.lower() in self._origins:
            return
        match = _ORIGIN.fullmatch(origin.lower())
        if match is None or match[1] != headers["host"].lower():
            raise Problem(
                403, "foreign-host", "this origin is not among allowed_origins in [server]"
            )

    def _grant(self, scope: Scope, headers: Headers) -> object:
        scheme, _, token = headers.get("authorization", "").partition(" ")
        slug = "unauthorized"
        refusal = "send a token as `Authorization: Bearer …`; the owner's is in the agent's home directory"
        challenge = 'Bearer realm="agent"'
        try:
            grant = self._tokens.grant_of(token.strip()) if scheme.lower() == "bearer" else None
            if grant is not None:
                return grant
        except ExpiredError as error:
            slug, refusal = "expired", str(error)
            challenge += ', error="invalid_token", error_description="expired"'
        self._log_refusal(scope, slug, has_token=bool(token))
        wait = self._failed_auth_limiter.add(client_address(scope))
        if wait > 0:
            raise retry_later(429, "too-many", "too many requests without a valid token", wait)
        raise Problem(401, slug, refusal, headers={"WWW-Authenticate": challenge})

    def _log_refusal(self, scope: Scope, reason: str, *, has_token: bool) -> None:
        """Log a failed login, without the token and at a limited rate."""
        held_back = self._refusals.admit(client_address(scope))
        if held_back is not None:
            log.warning(
                "api.login_refused",
                reason=reason if has_token else "no token",
                address=client_address(scope),
                path=scope["path"][:200],
                held_back=held_back,
            )

    def _holds(self, grant: TokenGrant | None) -> bool:
        """Whether a request's token or session is still valid, if it has one."""
        if grant is None:
            return True
        grants = self._pages.sessions if grant.channel == "page" else self._tokens
        return grants.still_holds(grant)

    def _check_length(self, headers: Headers) -> None:
        length = headers.get("content-length", "0")
        is_number = length.isascii() and length.isdigit()
        if is_number and (len(length) > _MAX_LENGTH_DIGITS or int(length) > self._max_body_bytes):
            raise _too_large(self._max_body_bytes)


class _LimitedBody:
    """Limits the size of a body and the time it takes to arrive, in which its token must not be revoked.

    `Content-Length` may be missing or wrong, and a client may never send the rest.
    """

    def __init__(
        self, receive: Receive, max_bytes: int, seconds: float, holds: Callable[[], bool]
    ) -> None:
        self._receive = receive
        self._holds = holds
        self._max_bytes = max_bytes
        self._received = 0
        self._seconds = seconds
        self._give_up_at = asyncio.get_running_loop().time() + seconds
        self._waiting: asyncio.Timeout | None = None
        self.is_complete = False

    def give_up(self) -> None:
        """Stop waiting for the rest of the body."""
        self._give_up_at = asyncio.get_running_loop().time()
        if self._waiting is not None:
            self._waiting.reschedule(self._give_up_at)

    async def __call__(self) -> Message:
        if self.is_complete:
            # The only message that can follow is the client's disconnect.
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._give_up_at) as self._waiting:
                message = await self._receive()
        except TimeoutError:
            raise Problem(
                408, "too-slow", f"the body did not arrive within {self._seconds:g} seconds"
            ) from None
        finally:
            self._waiting = None
        self.is_complete = not message.get("more_body", False)
        self._received += len(message.get("body", b""))
        if self._received > self._max_bytes:
            raise _too_large(self._max_bytes)
        if self.is_complete and not self._holds():
            raise revoked()
        return message


def _check_single(scope: Scope) -> None:
    """Refuse a request that repeats a header of `_SINGLE_HEADERS`."""
    seen = set()
    for name, _ in scope["headers"]:
        if name in _SINGLE_HEADERS:
            if name in seen:
                raise Problem(400, "bad-request", f"the header {name.decode()} occurs twice")
            seen.add(name)


def _too_large(max_bytes: int) -> Problem:
    return Problem(413, "too-large", f"a body may have at most {max_bytes:,} bytes")


def _host_name(host: str) -> str:
    """Return the host of a Host header without its port; "" if it is malformed."""
    match = _HOST.fullmatch(host.lower())
    return (match[1] or match[2]) if match else ""


def _names(hosts: Iterable[str]) -> frozenset[str]:
    return frozenset(name.lower().strip("[]").rstrip("/") for name in hosts)
