"""A remote that was not reached has a code that says why."""

import socket
import ssl

import httpcore
import pytest

from agent.core.failure_causes import is_bad_certificate
from agent.steps.http.transport_errors import described, transport_code


def _raised_from(cause: BaseException) -> Exception:
    error = httpcore.ConnectError("no connection")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("cause", "code"),
    [
        (socket.gaierror(-2, "unknown"), "dns"),
        (ConnectionRefusedError(111, "refused"), "refused"),
        (OSError("all failed"), "transport"),
        (ExceptionGroup("several", [ConnectionRefusedError(111, "no")]), "refused"),
        (ssl.SSLError("no handshake"), "tls"),
        (ssl.SSLCertVerificationError("expired"), "tls"),
        (httpcore.ConnectTimeout("slow"), "timeout"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_the_cause_decides_the_code(cause: BaseException, code: str) -> None:
    """Libraries wrap the error that tells: it is found below theirs."""
    assert transport_code(_raised_from(cause)) == code


@pytest.mark.parametrize(
    ("problem", "words"),
    [
        (httpcore.ConnectError("a:1 refused the connection"), "a:1 refused the connection"),
        (_raised_from(ssl.SSLError("no handshake")), "no TLS connection: no connection"),
        (httpcore.ConnectTimeout(), "no connection in time"),
        (httpcore.ReadTimeout(), "no response in time"),
        (httpcore.ReadError(), "the connection broke"),
        (httpcore.WriteError("reset."), "the connection broke: reset"),
        (httpcore.RemoteProtocolError("no end"), "no valid response: no end"),
        (httpcore.PoolTimeout("busy"), "PoolTimeout: busy"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_a_problem_is_described_without_the_names_of_libraries(
    problem: Exception, words: str
) -> None:
    """Where it is known what happened; otherwise the name of the error is all there is."""
    assert described(problem) == words


def test_only_a_refused_certificate_is_final() -> None:
    """A broken handshake may work the next time; a bad certificate stays bad."""
    assert is_bad_certificate(_raised_from(ssl.SSLCertVerificationError("expired")))
    assert not is_bad_certificate(_raised_from(ssl.SSLError("reset")))
