"""One HTTP exchange, redirects included; a failure says whether an effect may have begun."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import httpcore
import httpx

from agent.core.failure_causes import is_bad_certificate
from agent.core.files import file_descriptors
from agent.steps.http import body_reader, redirects
from agent.steps.http.address_policy import AddressRefusedError
from agent.steps.http.client import HttpServices, new_client
from agent.steps.http.response import document
from agent.steps.http.transport_errors import described, transport_code
from agent.steps.types.errors import DefiniteFailure, OutOfDescriptorsError, UnknownOutcomeError
from agent.steps.types.outcome import TRUNCATED, Json, StepError

_NETWORK_ERRORS = (
    httpcore.NetworkError,
    httpcore.TimeoutException,
    httpcore.ProtocolError,
    httpcore.ProxyError,
    httpcore.UnsupportedProtocol,
    httpx.HTTPError,
    httpx.StreamError,
    body_reader.BadEncodingError,
    OSError,
)

_PERMANENT: Final = frozenset({301, 308})
_HIGHEST_PORT: Final = 65_535
"""The HTTP library accepts more, and fails in unexpected ways when it connects."""


@dataclass(frozen=True, slots=True)
class RawResponse:
    """The last response of an exchange, with its body as bytes."""

    status: int
    headers: httpx.Headers
    body: bytes | None
    """None when it is larger than the limit."""
    is_encoded: bool
    """Whether the body still has a `Content-Encoding` that is not known here."""
    url: httpx.URL
    """Where it came from, after the redirects."""
    is_moved: bool
    """Whether every redirect on the way was a permanent one."""


class Exchange:
    """Sends one request, follows its redirects, and knows whether an effect may have begun."""

    def __init__(
        self,
        services: HttpServices,
        *,
        is_effect: bool,
        may_visit: Callable[[str], bool] | None = None,
    ) -> None:
        self._services = services
        self._is_effect = is_effect
        self._may_visit = may_visit
        self._has_begun = False

    async def send(
        self, method: str, url: str, values: dict[str, Json], secret_headers: set[str]
    ) -> dict[str, Any]:
        """Return the last response as a document.

        Raise `DefiniteFailure` where nothing began or the request may be repeated, and
        `UnknownOutcomeError` where an effect may have happened.
        """
        limits = self._services.limits
        limit_bytes = min(limits.response_bytes, limits.output_bytes)
        response = await self.fetch(method, url, values, secret_headers, limit_bytes)
        if response.body is None:
            return {**document(response.status, response.headers, b""), TRUNCATED: True}
        return document(
            response.status, response.headers, response.body, is_encoded=response.is_encoded
        )

    async def fetch(
        self,
        method: str,
        url: str,
        values: dict[str, Json],
        secret_headers: set[str],
        limit_bytes: int,
    ) -> RawResponse:
        """Return the last response with its body as bytes; it fails as `send` does."""
        client = new_client(self._services)
        try:
            address = httpx.URL(url)
            if values.get("params"):
                # As an argument they would replace the query of the address.
                address = address.copy_merge_params(values["params"])
            request = client.build_request(
                method.upper(),
                address,
                headers=values.get("headers"),
                json=values.get("json"),
                data=values["data"] if isinstance(values.get("data"), dict) else None,
                content=values["data"] if isinstance(values.get("data"), str) else None,
                extensions={"trace": self._trace},
            )
        except (httpx.InvalidURL, ValueError, TypeError) as error:
            raise _refused("bad_request", f"{url}: {error}") from None
        try:
            secret_names = {name.lower() for name in secret_headers}
            return await self._follow(client, request, secret_names, limit_bytes)
        except AddressRefusedError as error:
            raise self._failure(error, may_retry=False) from None
        except _NETWORK_ERRORS as error:
            raise self._failure(error) from error

    async def _follow(
        self,
        client: httpx.AsyncClient,
        request: httpx.Request,
        secret_headers: set[str],
        limit_bytes: int,
    ) -> RawResponse:
        limits = self._services.limits
        statuses: set[int] = set()
        for _ in range(limits.max_redirects + 1):
            if not _is_address(request.url):
                raise _refused("bad_request", f"{request.url} is not an http or https address")
            if self._may_visit is not None and not self._may_visit(str(request.url)):
                problem = AddressRefusedError(f"{request.url} is not among the allowed addresses")
                raise self._failure(problem, may_retry=False)
            response = await client.send(request, stream=True)
            try:
                following = response.next_request
                if following is None:
                    is_moved = bool(statuses) and statuses <= _PERMANENT
                    return await _read(response, request.url, limit_bytes, is_moved=is_moved)
            finally:
                await response.aclose()
            statuses.add(response.status_code)
            if following.method == request.method:
                # 307 and 308: the server only named another address.
                self._has_begun = False
            if not redirects.is_same_origin(request.url, following.url):
                if redirects.repeats_body(request, following):
                    raise self._refused_redirect(request, response.status_code, following)
                redirects.strip(following.headers, secret_headers)
            request = following
        raise httpx.TooManyRedirects(f"more than {limits.max_redirects} redirects")

    def _refused_redirect(
        self, request: httpx.Request, status: int, following: httpx.Request
    ) -> DefiniteFailure:
        """Return the failure of a request that was redirected to another origin with its body."""
        text = (
            f"{request.method} {request.url.copy_with(query=None)} was redirected with status"
            f" {status} to {redirects.origin(following.url)}, another origin: its body is not sent"
            " there. If that is the right server, write the final address in the step"
        )
        return DefiniteFailure(text, code="redirect_refused", kind="denied", may_retry=False)

    async def _trace(self, event: str, _: dict[str, Any]) -> None:
        if event.endswith("send_request_headers.started"):
            self._has_begun = True

    def _failure(self, error: Exception, *, may_retry: bool = True) -> Exception:
        text = described(error)
        if self._is_effect and self._has_begun:
            text = f"{text}; whether it took effect is unknown"
            return UnknownOutcomeError(StepError("connection_broken", "unknown", text))
        if isinstance(error, AddressRefusedError):
            return DefiniteFailure(
                str(error), code="address_refused", kind="denied", may_retry=False
            )
        if isinstance(error, httpx.TooManyRedirects | httpx.UnsupportedProtocol):
            may_retry = False
        if isinstance(error, httpcore.LocalProtocolError | httpcore.UnsupportedProtocol):
            return _refused("bad_request", text)
        if file_descriptors.is_exhaustion(error):
            return OutOfDescriptorsError("an HTTP request")
        code = transport_code(error)
        if is_bad_certificate(error):
            may_retry = False
        return DefiniteFailure(text, code=code, kind="transport", may_retry=may_retry)


async def _read(
    response: httpx.Response, url: httpx.URL, limit_bytes: int, *, is_moved: bool
) -> RawResponse:
    encoding = response.headers.get("content-encoding", "")
    body = await body_reader.read(response.aiter_raw(), encoding, limit_bytes)
    is_encoded = not body_reader.is_known(encoding)
    return RawResponse(
        response.status_code, response.headers, body, is_encoded, url, is_moved=is_moved
    )


def _is_address(url: httpx.URL) -> bool:
    is_port = url.port is None or url.port <= _HIGHEST_PORT
    return url.scheme in ("http", "https") and bool(url.host) and is_port


def _refused(code: str, message: str) -> DefiniteFailure:
    return DefiniteFailure(message, code=code, kind="input", may_retry=False)
