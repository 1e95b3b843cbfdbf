"""Classifies failed calls of models: may a retry help, and may the call have cost money?

Pure functions of the exception or the response, the same for every provider.
"""

import json
import re
import socket
import ssl
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final

from agent.core.failure_causes import causes, is_bad_certificate

MAX_DELAY_SECONDS: Final = 86_400.0
_MAX_SHOWN: Final = 500

_CONTEXT: Final = re.compile(
    r"context_length_exceeded|context (length|window)|prompt is too long|maximum context",
    re.IGNORECASE,
)
_ADVICE: Final = {
    400: "the request was refused; check the step's keys and the model's settings",
    401: "the key was not accepted; check `key` of the model in the configuration",
    402: "the provider's account has no credit left",
    403: "the key may not use this model; check the account's permissions",
    404: "there is no such model or address; check `model` and `base_url` in the configuration",
    413: "the request is too large; shorten the prompt",
    422: "the request was refused; check the step's keys and the model's settings",
}
_REDIRECT_ADVICE: Final = (
    "redirects are not followed; put the address that answers into `base_url` of the model"
)
_RETRYABLE: Final = frozenset({408, 409, 425, 429})


class ModelError(Exception):
    """A call of a model without an answer.

    `kind` is an error class of steps. `may_have_cost` is false only where the provider certainly did
    not process the request.
    """

    def __init__(
        self,
        code: str,
        kind: str,
        message: str,
        *,
        may_retry: bool,
        may_have_cost: bool = False,
        delay_seconds: float | None = None,
        request_id: str | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.kind = kind
        self.message = message
        self.may_retry = may_retry
        self.may_have_cost = may_have_cost
        self.delay_seconds = delay_seconds
        self.request_id = request_id


def transport_error(error: BaseException, where: str, request_id: str | None = None) -> ModelError:
    """Return the error of a request that got no response; a retry may help, except for a certificate."""
    found = list(causes(error))
    text = _shorten(str(found[-1]) or type(found[-1]).__name__)
    if any(isinstance(cause, socket.gaierror) for cause in found):
        return _unreached("dns", f"{where}: the name cannot be resolved: {text}")
    if any(isinstance(cause, ConnectionRefusedError) for cause in found):
        return _unreached("refused", f"{where}: the connection was refused")
    names = {type(cause).__name__ for cause in found}
    if any(isinstance(cause, ssl.SSLError) for cause in found):
        may_retry = not is_bad_certificate(error)
        return _unreached("tls", f"{where}: no secure connection: {text}", may_retry=may_retry)
    if any("ConnectTimeout" in name for name in names):
        return _unreached("timeout", f"{where}: no connection in time", kind="timeout")
    if any("Timeout" in name for name in names):
        return timed_out(where)
    if "ConnectError" in names:
        return _unreached("transport", f"{where}: no connection: {text}")
    message = f"{where}: the connection broke before the whole answer arrived: {text}"
    return ModelError(
        "transport",
        "transport",
        message,
        may_retry=True,
        may_have_cost=True,
        request_id=request_id,
    )


def timed_out(where: str) -> ModelError:
    """Return the error of a request without an answer in time; the provider may still process it."""
    message = f"{where}: no answer in time"
    return ModelError("timeout", "timeout", message, may_retry=True, may_have_cost=True)


def status_error(
    status: int, headers: Mapping[str, str], body: object, where: str, request_id: str | None
) -> ModelError:
    """Return the error for a response with an error status."""
    detail = _shorten(error_text(body))
    text = f"{where} answered with status {status}" + (f": {detail}" if detail else "")
    if status in _RETRYABLE or status >= 500:
        return ModelError(
            "rate_limited" if status == 429 else f"status_{status}",
            "remote",
            text,
            may_retry=True,
            # A gateway that timed out does not know the fate of the request behind it.
            may_have_cost=status in (408, 502, 504),
            delay_seconds=retry_after(headers),
            request_id=request_id,
        )
    if status in (400, 413, 422) and _CONTEXT.search(_as_text(body)):
        text = f"{text}; the prompt is longer than the model's context: shorten it"
        code = "context_exceeded"
        return ModelError(code, "limit", text, may_retry=False, request_id=request_id)
    advice = _REDIRECT_ADVICE if 300 <= status < 400 else _ADVICE.get(status)
    text = f"{text}; {advice}" if advice else text
    return ModelError(f"status_{status}", "remote", text, may_retry=False, request_id=request_id)


def malformed(problem: str, where: str, request_id: str | None = None) -> ModelError:
    """Return the error of a response that cannot be read; the provider may have charged for it."""
    message = f"{where}: the answer cannot be read: {_shorten(problem)}"
    return ModelError(
        "malformed_answer",
        "remote",
        message,
        may_retry=True,
        may_have_cost=True,
        request_id=request_id,
    )


def unsupported(message: str) -> ModelError:
    """Return the error of a setting that a model does not have."""
    return ModelError("unsupported", "input", message, may_retry=False)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the delay that the provider asks for: in milliseconds, in seconds or as a date."""
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        text = headers.get(name, "").strip()
        if re.fullmatch(r"[0-9]{1,9}(\.[0-9]+)?", text):
            return min(float(text) / unit, MAX_DELAY_SECONDS)
    try:
        moment = parsedate_to_datetime(headers.get("retry-after", ""))
    except (TypeError, ValueError):
        return None
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    # By the server's own clock, if it sends its time: ours may be wrong.
    try:
        now = parsedate_to_datetime(headers.get("date", ""))
        now = now if now.tzinfo is not None else now.replace(tzinfo=UTC)
    except (TypeError, ValueError):
        now = datetime.now(UTC)
    return min(max((moment - now).total_seconds(), 0.0), MAX_DELAY_SECONDS)


def error_text(body: object) -> str:
    """Return the message in an error's body, in any of the usual formats."""
    if isinstance(body, Mapping):
        for key in ("error", "message", "detail", "type"):
            if key in body:
                return error_text(body[key])
        return ""
    return body if isinstance(body, str) else ""


def _unreached(
    code: str, message: str, kind: str = "transport", *, may_retry: bool = True
) -> ModelError:
    return ModelError(code, kind, message, may_retry=may_retry)


def _as_text(body: Any) -> str:
    return body if isinstance(body, str) else json.dumps(body, default=str)


def _shorten(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _MAX_SHOWN else text[: _MAX_SHOWN - 1] + "…"
