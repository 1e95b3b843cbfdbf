"""Redirects to another origin carry no headers and no body meant for the first one.

A step sends its headers and its body to the server that it names. A header of any name may be a
credential and a body may hold one, so another origin gets neither, whatever the first server says.
"""

from collections.abc import Iterable
from typing import Final

import httpx

_FORWARDED: Final = frozenset(
    {
        "accept",
        "accept-encoding",
        "accept-language",
        "connection",
        "content-length",
        "host",
        # No secret; without it a repeated request would act twice.
        "idempotency-key",
        "user-agent",
    }
)
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


def is_same_origin(one: httpx.URL, other: httpx.URL) -> bool:
    """Whether two addresses have the same origin; an upgrade from HTTP to HTTPS counts as the same.

    A downgrade from HTTPS to HTTP does not: others could read the request.
    """
    if _parts(one) == _parts(other):
        return True
    return (
        one.host == other.host
        and _parts(one)[::2] == ("http", 80)
        and _parts(other)[::2] == ("https", 443)
    )


def repeats_body(request: httpx.Request, following: httpx.Request) -> bool:
    """Whether the request that follows a redirect would carry the body of the first one."""
    if following.method != request.method:
        return False
    length = request.headers.get("content-length", "0")
    return length != "0" or "transfer-encoding" in request.headers


def strip(headers: httpx.Headers, secret_headers: Iterable[str]) -> None:
    """Remove the headers that were meant for the first origin only."""
    for name in {name.lower() for name in headers}:
        if name not in _FORWARDED:
            del headers[name]
    for name in secret_headers:
        headers.pop(name, None)


def origin(url: httpx.URL) -> str:
    """Return an address without its path, which may hold anything."""
    port = "" if url.port is None else f":{url.port}"
    return f"{url.scheme}://{url.host}{port}"


def _parts(url: httpx.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port or _DEFAULT_PORTS.get(url.scheme)
