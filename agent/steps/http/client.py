"""The HTTP connections that a worker's steps share; imported at the first request."""

from collections.abc import AsyncIterator
from typing import Final, Protocol

import httpcore
import httpx

from agent.steps.attempt.services import Limits, Resource
from agent.steps.http.address_policy import AddressPolicy, GuardedBackend
from agent.steps.http.body_reader import ENCODINGS

CONNECT_SECONDS: Final = 10.0
REPEATABLE: Final = frozenset({"GET", "HEAD"})


class HttpServices(Protocol):
    """The sender of an exchange: a step, a tool or a watcher."""

    @property
    def limits(self) -> Limits:
        """The address policy, and the limits of redirects and sizes."""

    @property
    def resources(self) -> dict[str, Resource]:
        """Where the shared connections are kept, as `http`."""


class _Body(httpx.AsyncByteStream):
    def __init__(self, stream: object) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._stream:  # type: ignore[attr-defined]
            yield part

    async def aclose(self) -> None:
        await self._stream.aclose()  # type: ignore[attr-defined]


class GuardedTransport(httpx.AsyncBaseTransport):
    """Sends requests over connections whose addresses were checked.

    Each effect gets a new connection: a server that closes a reused one at the wrong moment would
    leave the effect unknown without need.
    """

    def __init__(self, limits: Limits) -> None:
        backend = GuardedBackend(AddressPolicy(limits.allow_private))
        context = httpx.create_ssl_context()
        self._reused = httpcore.AsyncConnectionPool(
            ssl_context=context,
            max_connections=None,
            max_keepalive_connections=20,
            keepalive_expiry=5.0,
            network_backend=backend,
        )
        self._fresh = httpcore.AsyncConnectionPool(
            ssl_context=context,
            max_connections=None,
            max_keepalive_connections=0,
            network_backend=backend,
        )

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send one request; failures are httpcore's own exceptions."""
        pool = self._reused if request.method in REPEATABLE else self._fresh
        response = await pool.handle_async_request(
            httpcore.Request(
                method=request.method,
                url=httpcore.URL(
                    scheme=request.url.raw_scheme,
                    host=request.url.raw_host,
                    port=request.url.port,
                    target=request.url.raw_path,
                ),
                headers=request.headers.raw,
                content=request.stream,
                extensions=request.extensions,
            )
        )
        return httpx.Response(
            status_code=response.status,
            headers=response.headers,
            stream=_Body(response.stream),
            extensions=response.extensions,
        )

    async def aclose(self) -> None:
        """Close every connection."""
        await self._reused.aclose()
        await self._fresh.aclose()


def new_client(services: HttpServices) -> httpx.AsyncClient:
    """Return a client for one exchange, on the worker's connections.

    Its cookies go with its own redirects only. It need not be closed: its connections are the
    worker's.
    """
    # By the policy: after a reload of the settings, new requests follow the new one.
    name = f"http {' '.join(services.limits.allow_private)}"
    transport = services.resources.get(name)
    if transport is None:
        transport = services.resources[name] = GuardedTransport(services.limits)
    assert isinstance(transport, GuardedTransport)
    return httpx.AsyncClient(
        transport=transport,
        timeout=httpx.Timeout(None, connect=CONNECT_SECONDS),
        headers={"User-Agent": "agent", "Accept-Encoding": ENCODINGS},
        follow_redirects=False,
        trust_env=False,
    )
