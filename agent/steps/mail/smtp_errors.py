"""Classifies failures of an SMTP session: the mail was refused, for now or for good, or its fate is unknown.

A server accepts a message with its reply to the end of DATA and not before. So everything that fails
until the last byte is written is a definite failure, and so is a reply that refuses: 4xx may be tried
again, 5xx is final. Only a session that breaks between the last byte and the reply is unknown.
"""

import os
import re
import ssl
from typing import Final

from agent.core.files import file_descriptors
from agent.core.redaction import everywhere
from agent.steps.types.errors import DefiniteFailure, OutOfDescriptorsError, UnknownOutcomeError
from agent.steps.types.outcome import StepError

CONNECTING: Final = "the connection"
"""The phase before the server has answered anything."""
GREYLIST_SECONDS: Final = 300.0
"""Servers that refuse a first try for now usually accept one after some minutes."""
_BUSY_SECONDS: Final = 60.0
_CLOSING: Final = 421
_TOO_LARGE: Final = 552
_TEMPORARY_LOGIN: Final = frozenset({421, 432, 451, 454})
_TEXT_LENGTH: Final = 300


def reply_text(code: int, text: str) -> str:
    """Return a server's answer in one bounded line without secrets."""
    line = " ".join(re.sub(r"[^\x20-\x7e\xa0-\U0010ffff]", " ", everywhere.redact(text)).split())
    return f"{code} {line}"[:_TEXT_LENGTH].strip()


def refusal(host: str, phase: str, code: int, text: str) -> DefiniteFailure:
    """Return the failure of a command that the server answered with 4xx or 5xx."""
    shown = f"{host} refused {phase}: {reply_text(code, text)}"
    if 400 <= code < 500:
        delay = _BUSY_SECONDS if code == _CLOSING else GREYLIST_SECONDS
        return DefiniteFailure(
            f"{shown}; it may be accepted later", code=f"status_{code}", delay_seconds=delay
        )
    if code == _TOO_LARGE or "5.3.4" in text[:10]:
        return DefiniteFailure(
            f"{shown}; the mail is too large for the server",
            code="mail_too_large",
            kind="limit",
            may_retry=False,
        )
    return DefiniteFailure(shown, code=f"status_{code}", may_retry=False)


def login_refusal(host: str, account: str, code: int, text: str) -> DefiniteFailure:
    """Return the failure of a login."""
    if code in _TEMPORARY_LOGIN:
        return refusal(host, "the login", code, text)
    return DefiniteFailure(
        f"{host} refused the login: {reply_text(code, text)}; check user and password of [mail.{account}]"
        " (many providers need an app password)",
        code="mail_login",
        kind="denied",
        may_retry=False,
    )


def failure(error: BaseException, host: str, phase: str, *, is_sent: bool) -> Exception:
    """Classify an exception of a session; `is_sent`: the last byte was written."""
    text = f"{type(error).__name__}: {error}".rstrip(": ")
    if is_sent:
        return UnknownOutcomeError(
            StepError(
                "connection_broken",
                "unknown",
                f"{host} got the whole mail and did not say whether it accepted it ({text})",
            )
        )
    cause = _cause(error)
    if isinstance(cause, ssl.SSLCertVerificationError):
        return _tls(
            f"the certificate of {host} is not valid: {cause.verify_message}; for a server with a"
            " certificate authority of its own, set SSL_CERT_FILE"
        )
    if isinstance(cause, ssl.SSLError):
        return _tls(f"TLS with {host} failed: {cause.reason or cause}; check `port` and `tls`")
    if isinstance(error, TimeoutError):
        return DefiniteFailure(
            f"{host} did not answer in time ({phase}); the mail was not sent",
            code="timeout",
            kind="timeout",
        )
    if isinstance(cause, OSError) and file_descriptors.is_exhaustion(cause):
        return OutOfDescriptorsError(f"a connection to {host}")
    reply = getattr(error, "code", None)
    if isinstance(reply, int) and reply >= 400:
        return refusal(host, phase, reply, str(getattr(error, "message", "")))
    during = "" if phase == CONNECTING else f" (at {phase})"
    return DefiniteFailure(
        f"the connection to {host} failed{during}: {everywhere.redact(_reason(cause))}; the mail was"
        " not sent",
        code="refused" if isinstance(cause, ConnectionRefusedError) else "transport",
        kind="transport",
    )


def _cause(error: BaseException) -> BaseException:
    """Return the error of the system behind one of the library."""
    while isinstance(error.__cause__, OSError):
        error = error.__cause__
    return error


def _reason(error: BaseException) -> str:
    if isinstance(error, OSError) and error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    return str(error) or type(error).__name__


def _tls(message: str) -> DefiniteFailure:
    return DefiniteFailure(message, code="mail_tls", kind="transport", may_retry=False)
