"""Classifies HTTP responses: pure functions of status, headers and body."""

import base64
import json
import re
from collections.abc import Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any, Final, Literal

from agent.core.clock import SECOND
from agent.steps.types.outcome import Json
from agent.store.db.json_values import NotPlainJsonError, encode

Verdict = Literal["succeeded", "retry", "failed", "unknown"]

NOT_PROCESSED: Final = frozenset({408, 425, 429})
"""With these the server says that it did not process the request, and that a retry may help."""

MAX_DELAY_SECONDS: Final = 86_400.0
_text_type = re.compile(
    r"^(text/|application/(.+\+)?(json|xml)|application/(x-www-form|javascript))"
)


def verdict(status: int, expected: list[tuple[int, int]], *, is_repeatable: bool) -> Verdict:
    """Classify a status, for a repeatable request or for an effect."""
    if any(first <= status <= last for first, last in expected):
        return "succeeded"
    if status in NOT_PROCESSED:
        return "retry"
    if status >= 500:
        return "retry" if is_repeatable else "unknown"
    return "failed"


def delay_seconds(retry_after: str | None, now_us: int) -> float | None:
    """Parse `Retry-After`, in seconds or as a date; None when it is not valid."""
    if retry_after is None:
        return None
    text = retry_after.strip()
    if re.fullmatch(r"[0-9]{1,9}", text):
        return min(float(text), MAX_DELAY_SECONDS)
    try:
        moment = parsedate_to_datetime(text)
    except (TypeError, ValueError):
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return min(max(moment.timestamp() - now_us / SECOND, 0.0), MAX_DELAY_SECONDS)


def document(
    status: int, headers: Mapping[str, str], body: bytes, *, is_encoded: bool = False
) -> dict[str, Any]:
    """Return a response as a step's output: JSON as its value, text as text, the rest as base64."""
    media = headers.get("content-type", "").lower()
    fields = {name.lower(): _clean(value) for name, value in headers.items()}
    output: dict[str, Any] = {"status": status, "headers": fields, "body": None}
    if not body:
        return output
    if is_encoded:
        return {**output, "body": base64.b64encode(body).decode("ascii"), "encoding": "base64"}
    charset = re.search(r"charset=\"?([\w-]+)", media)
    text = _decoded(body, charset[1] if charset else "utf-8")
    if re.match(r"^application/(.+\+)?json", media):
        output["body"] = _json(text)
    elif _text_type.match(media) or (not media and _is_text(body)):
        output["body"] = _clean(text)
    else:
        output["body"] = base64.b64encode(body).decode("ascii")
        output["encoding"] = "base64"
    return output


def _json(text: str) -> Json:
    """Parse JSON; return the text if it is not plain JSON."""
    try:
        value = json.loads(text, parse_constant=_refuse)
        encode(value, "body")
    except (ValueError, RecursionError, NotPlainJsonError):
        return _clean(text)
    return value


def _refuse(name: str) -> Json:
    raise ValueError(name)


def _decoded(body: bytes, charset: str) -> str:
    try:
        return body.decode(charset, "replace")
    except LookupError:
        return body.decode("utf-8", "replace")


def _is_text(body: bytes) -> bool:
    try:
        return "\0" not in body.decode("utf-8")
    except UnicodeDecodeError:
        return False


def _clean(text: str) -> str:
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")
