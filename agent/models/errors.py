"""What a failed call of a model means: whether it may be tried again, and whether it may have cost.

Pure functions of what was raised or answered; the same for every provider.
"""

import json
import re
import socket
import ssl
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final

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
_AGAIN: Final = frozenset({408, 409, 425, 429})


class ModelError(Exception):
    """A call of a model that gave no answer.

    `kind` is an error class of steps. `may_have_cost` is false only where the provider surely did
    not work on the request.
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


def transport_error(
    problem: BaseException, where: str, request_id: str | None = None
) -> ModelError:
    """Say what kept a request from being answered; all of it may be tried again."""
    causes = list(_causes(problem))
    text = _shown(str(causes[-1]) or type(causes[-1]).__name__)
    if any(isinstance(cause, socket.gaierror) for cause in causes):
        return _unreached("dns", f"{where}: the name cannot be resolved: {text}")
    if any(isinstance(cause, ConnectionRefusedError) for cause in causes):
        return _unreached("refused", f"{where}: the connection was refused")
    names = {type(cause).__name__ for cause in causes}
    if any(isinstance(cause, ssl.SSLError) for cause in causes):
        return _unreached("tls", f"{where}: no secure connection: {text}")
    if any("ConnectTimeout" in name for name in names):
        return _unreached("timeout", f"{where}: no connection in time", kind="timeout")
    if any("Timeout" in name for name in names):
        return timed_out(where)
    if "ConnectError" in names:
        return _unreached("transport", f"{where}: no connection: {text}")
    message = f"{where}: the connection broke before the whole answer was there: {text}"
    return ModelError(
        "transport",
        "transport",
        message,
        may_retry=True,
        may_have_cost=True,
        request_id=request_id,
    )


def timed_out(where: str) -> ModelError:
    """Say that no answer came in time; the provider may be working on it still."""
    message = f"{where}: no answer in time"
    return ModelError("timeout", "timeout", message, may_retry=True, may_have_cost=True)


def status_error(
    status: int, headers: Mapping[str, str], body: object, where: str, request_id: str | None
) -> ModelError:
    """Say what an answer with an error's status means."""
    said = _shown(said_in(body))
    text = f"{where} answered with status {status}" + (f": {said}" if said else "")
    if status in _AGAIN or status >= 500:
        return ModelError(
            "rate_limited" if status == 429 else f"status_{status}",
            "remote",
            text,
            may_retry=True,
            # A gateway that gave up waiting does not know what the model behind it did.
            may_have_cost=status in (408, 502, 504),
            delay_seconds=retry_after(headers),
            request_id=request_id,
        )
    if status in (400, 413, 422) and _CONTEXT.search(_whole(body)):
        text = f"{text}; the prompt is longer than the model's context: shorten it"
        code = "context_exceeded"
        return ModelError(code, "limit", text, may_retry=False, request_id=request_id)
    advice = _REDIRECT_ADVICE if 300 <= status < 400 else _ADVICE.get(status)
    text = f"{text}; {advice}" if advice else text
    return ModelError(f"status_{status}", "remote", text, may_retry=False, request_id=request_id)


def malformed(problem: str, where: str, request_id: str | None = None) -> ModelError:
    """Say that an answer came which is none; the provider has charged for it perhaps."""
    message = f"{where}: the answer cannot be read: {_shown(problem)}"
    return ModelError(
        "malformed_answer",
        "remote",
        message,
        may_retry=True,
        may_have_cost=True,
        request_id=request_id,
    )


def unsupported(message: str) -> ModelError:
    """Say that a model has no such setting."""
    return ModelError("unsupported", "input", message, may_retry=False)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Read how long the provider asks to wait: milliseconds, seconds or a date."""
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        text = headers.get(name, "").strip()
        if re.fullmatch(r"[0-9]{1,9}(\.[0-9]+)?", text):
            return min(float(text) / unit, MAX_DELAY_SECONDS)
    try:
        moment = parsedate_to_datetime(headers.get("retry-after", ""))
    except (TypeError, ValueError):
        return None
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    # Against the server's own clock, where it tells it: ours may be wrong.
    try:
        now = parsedate_to_datetime(headers.get("date", ""))
        now = now if now.tzinfo is not None else now.replace(tzinfo=UTC)
    except (TypeError, ValueError):
        now = datetime.now(UTC)
    return min(max((moment - now).total_seconds(), 0.0), MAX_DELAY_SECONDS)


def said_in(body: object) -> str:
    """Return what an error's body says for people, in any of the forms that are in use."""
    if isinstance(body, Mapping):
        for key in ("error", "message", "detail", "type"):
            if key in body:
                return said_in(body[key])
        return ""
    return body if isinstance(body, str) else ""


def _unreached(code: str, message: str, kind: str = "transport") -> ModelError:
    return ModelError(code, kind, message, may_retry=True)


def _causes(problem: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    cause: BaseException | None = problem
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        cause = cause.__cause__ or cause.__context__


def _whole(body: Any) -> str:
    return body if isinstance(body, str) else json.dumps(body, default=str)


def _shown(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _MAX_SHOWN else text[: _MAX_SHOWN - 1] + "…"
