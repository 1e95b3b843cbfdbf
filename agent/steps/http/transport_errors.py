"""Why a remote was not reached, as a code that workflows and people can tell apart."""

import socket
import ssl
from typing import Final

import httpcore
import httpx

from agent.core.failure_causes import causes

_WORDS: Final = (
    (
        (httpcore.ReadError, httpcore.WriteError, httpx.ReadError, httpx.WriteError),
        "the connection broke",
    ),
    ((httpcore.RemoteProtocolError, httpx.RemoteProtocolError), "no valid response"),
)


def transport_code(exception: BaseException) -> str:
    """Return `dns`, `refused`, `tls`, `timeout`, or `transport` for anything else."""
    for error in causes(exception):
        if isinstance(error, socket.gaierror | UnicodeError):
            return "dns"
        if isinstance(error, ConnectionRefusedError):
            return "refused"
        if isinstance(error, ssl.SSLError):
            return "tls"
        if isinstance(error, httpcore.TimeoutException | httpx.TimeoutException | TimeoutError):
            return "timeout"
    return "transport"


def described(error: Exception) -> str:
    """Return an error of a connection in words; the name of its class only where nothing else says it."""
    text = str(error).rstrip(".")
    if text and isinstance(
        error,
        httpcore.ConnectError | httpcore.ConnectTimeout | httpx.ConnectError | httpx.ConnectTimeout,
    ):
        return f"no TLS connection: {text}" if transport_code(error) == "tls" else text
    if not text and isinstance(error, httpcore.ConnectTimeout | httpx.ConnectTimeout):
        return "no connection in time"
    if not text and isinstance(error, httpcore.ReadTimeout | httpx.ReadTimeout):
        return "no response in time"
    for classes, words in _WORDS:
        if isinstance(error, classes):
            return f"{words}: {text}".rstrip(": ")
    return f"{type(error).__name__}: {text}".rstrip(": ")
