"""One conditional GET for a watcher, through the client and the address policy of the `http` step.

A source keeps the `cursor` of a `Fetched` in its own cursor. The next poll sends its `ETag` and
`Last-Modified` back, and gets no body when nothing changed.
"""

import asyncio
import hashlib
import json
import re
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, Final
from urllib.parse import urlsplit

import structlog

from agent.core.clock import SECOND
from agent.steps.attempt.secrets import Secrets, references
from agent.steps.types.errors import DefiniteFailure
from agent.triggers.watchers.source import Json, PollContext, SourceError

_COMPLETE: Final = frozenset({200, 203})
"""The statuses of a whole document; 206 is a part of one."""
_OVERLOADED: Final = frozenset({429, 503})
_MAX_VALIDATOR_LENGTH: Final = 1000
_SHOWN_URL_LENGTH: Final = 300
_SHOWN_BODY_LENGTH: Final = 80
_SHOWN_PROBLEM_LENGTH: Final = 2000
_SEARCHED_LENGTH: Final = 16_384

log = structlog.get_logger(__name__)
_secrets: Final = Secrets()


@dataclass(frozen=True, slots=True)
class Fetched:
    """What a server answered: a document, or that it is the one that the cursor was made from."""

    body: bytes | None
    """None if nothing changed."""
    content_type: str
    """The header as it came, parameters included; empty if there was none."""
    url: str
    """Where it came from, after the redirects; without a password."""
    cursor: dict[str, Json]
    """`etag`, `modified`, `body_hash`, `definition` and `moved_to`, for the source's own cursor."""


async def get(
    keys: dict[str, Any], cursor: Json, context: PollContext, *, accept: str = "*/*"
) -> Fetched:
    """Fetch `keys["url"]` with `keys["headers"]`, if it is not what the cursor was made from.

    Raise `SourceError` for everything but a whole document. Where the server sends no validators,
    the body's hash shows that it is the same.
    """
    url: str = keys["url"]
    known = cursor if _is_made_with(keys, cursor) else {}
    own_headers = keys.get("headers") or {}
    validators = _validators(known, own_headers)
    try:
        secret_paths = frozenset(references(own_headers))
        headers = {"Accept": accept, **validators}
        own = {name.lower() for name in own_headers}
        headers = {name: value for name, value in headers.items() if name.lower() not in own}
        headers |= await Secrets().read(own_headers, secret_paths)
        secret_names = {str(path[0]) for path in secret_paths}
        response = await _fetch(url, headers, secret_names, context)
    except DefiniteFailure as error:
        text = str(error).replace(url, shown(url))
        raise SourceError(redact(f"{shown(url)}: {text}")) from None
    if response.status == 304 and validators:
        # The answer need not repeat the validators.
        fresh = _new_validators(response, context)
        return _fetched(None, response, {**known, **{k: v for k, v in fresh.items() if v}})
    body = _whole_body(url, response, context)
    body_hash = hashlib.sha256(body).hexdigest()
    new_validators = {
        **_new_validators(response, context),
        "body_hash": body_hash,
        "definition": _definition(keys),
        "moved_to": shown(str(response.url)) if response.is_moved else None,
    }
    if new_validators["moved_to"] is not None and new_validators["moved_to"] != known.get(
        "moved_to"
    ):
        log.warning("watcher.moved", url=shown(url), to=new_validators["moved_to"])
    return _fetched(None if body_hash == known.get("body_hash") else body, response, new_validators)


def _fetched(body: bytes | None, response: Any, cursor: dict[str, Json]) -> Fetched:
    names = ("etag", "modified", "body_hash", "definition", "moved_to")
    return Fetched(
        body,
        response.headers.get("content-type", ""),
        without_password(str(response.url)),
        {name: cursor.get(name) for name in names},
    )


def _new_validators(response: Any, context: PollContext) -> dict[str, Json]:
    if _may_change_within_its_second(response, context):
        return {"etag": None, "modified": None}
    return {
        "etag": _sendable(response.headers.get("etag")),
        "modified": _sendable(response.headers.get("last-modified")),
    }


def _may_change_within_its_second(response: Any, context: PollContext) -> bool:
    """Whether a document is so new that a later change may leave its validators as they are.

    `Last-Modified` counts whole seconds, and web servers make an `ETag` of it and the size. A document
    that was changed in the second of its response can change again in that second (RFC 9110, 8.8.2.2).
    """
    modified = _seconds(response.headers.get("last-modified"))
    if modified is None:
        return False
    responded = _seconds(response.headers.get("date"))
    return modified + 1 > (context.clock.now() / SECOND if responded is None else responded)


def _seconds(date: str | None) -> float | None:
    try:
        return None if date is None else parsedate_to_datetime(date).timestamp()
    except (TypeError, ValueError, OverflowError):
        return None


def _whole_body(url: str, response: Any, context: PollContext) -> bytes:
    if response.status not in _COMPLETE:
        raise _status_error(url, response, context)
    if response.body is None:
        limit = context.limits.response_bytes
        raise SourceError(f"{shown(url)}: the response is larger than the limit of {limit} bytes")
    if response.is_encoded:
        encoding = redact(response.headers["content-encoding"])[:_SHOWN_BODY_LENGTH]
        raise SourceError(f"{shown(url)}: the response has the unknown encoding {encoding!r}")
    body: bytes = response.body
    return body


async def _fetch(
    url: str, headers: dict[str, str], secret_names: set[str], context: PollContext
) -> Any:
    # The HTTP library is imported at the first request.
    from agent.steps.http.exchange import Exchange

    try:
        async with asyncio.timeout(context.timeout_seconds):
            return await Exchange(context, is_effect=False).fetch(
                "get", url, {"headers": headers}, secret_names, context.limits.response_bytes
            )
    except TimeoutError:
        raise SourceError(
            f"{shown(url)}: no complete response within {context.timeout_seconds:g} s"
        ) from None


def changed_definition(keys: dict[str, Any], cursor: Json) -> str | None:
    """Return why a cursor's items say nothing about what these keys name; None if they do.

    A trigger with an `id` keeps its cursor when its source is edited. Other headers do not matter.
    """
    if not isinstance(cursor, dict) or not isinstance(cursor.get("definition"), str):
        return None
    if cursor["definition"].partition(":")[0] == _definition(keys).partition(":")[0]:
        return None
    return "the definition of what is watched has changed"


def _is_made_with(keys: dict[str, Any], cursor: Json) -> bool:
    """Whether a cursor was made with these keys; with others, "unchanged" would mean nothing."""
    return isinstance(cursor, dict) and cursor.get("definition") == _definition(keys)


def shown(url: str) -> str:
    """Return an address as messages show it: without user, password and query."""
    try:
        parts = urlsplit(url)
        host = parts.netloc.rpartition("@")[2]
        plain = f"{parts.scheme}://{host}{parts.path}"
    except ValueError:
        plain = url.partition("?")[0]
    return redact(plain)[:_SHOWN_URL_LENGTH]


def without_password(url: str) -> str:
    """Return an address without the user and the password that it may contain."""
    return re.sub(r"^(\w+://)[^/?#@]*@", r"\1", url)


def unreadable(url: str, fetched: Fetched, error: Exception) -> SourceError:
    """Return the error of a document that could not be used: what is wrong, and what came."""
    body = fetched.body or b""
    # Redacted before it is cut: a part of a secret would not be found.
    start = redact(body[:_SEARCHED_LENGTH].decode("utf-8", "replace").replace("\0", ""))
    came = repr(" ".join(start.split())[:_SHOWN_BODY_LENGTH]) if body else "an empty body"
    kind = redact(fetched.content_type)[:_SHOWN_BODY_LENGTH] or "without a content type"
    text = redact(str(error))[:_SHOWN_PROBLEM_LENGTH]
    return SourceError(f"{shown(url)}: {text} (what came: {kind}, {came})")


def redact(text: str) -> str:
    """Return a text without the secrets that this process has read by reference."""
    return _secrets.redact(text)


def redact_value(value: Json) -> Json:
    """Return a plain JSON value without the secrets that this process has read by reference."""
    return _secrets.redact_value(value)


def _definition(keys: dict[str, Any]) -> str:
    """Return the hashes of the keys and of the headers, where secrets are references only."""
    other = {name: value for name, value in keys.items() if name != "headers" and value is not None}
    texts = (json.dumps(part, sort_keys=True) for part in (other, keys.get("headers") or {}))
    return ":".join(hashlib.sha256(text.encode()).hexdigest()[:16] for text in texts)


def _validators(known: dict[str, Json], headers: dict[str, str]) -> dict[str, str]:
    """Return the headers of a conditional request, unless the definition has its own."""
    if {"if-none-match", "if-modified-since"} & {name.lower() for name in headers}:
        return {}
    pairs = (("If-None-Match", known.get("etag")), ("If-Modified-Since", known.get("modified")))
    return {name: value for name, value in pairs if isinstance(value, str)}


def _sendable(value: str | None) -> str | None:
    """Return a validator that can be sent back; a strange one counts as none."""
    if value is None or not 0 < len(value) <= _MAX_VALIDATOR_LENGTH:
        return None
    is_plain = value.isascii() and value.isprintable() and redact(value) == value
    return value if is_plain else None


_ADVICE: Final = {
    304: "although the request was not conditional",
    401: "check the credentials under `headers`",
    403: "check the credentials under `headers`",
    404: "check the address",
    410: "it is gone for good: remove this watcher, or give it another address",
}


def _status_error(url: str, response: Any, context: PollContext) -> SourceError:
    from agent.steps.http.response import delay_seconds

    status: int = response.status
    text = f"{shown(url)} was answered with status {status}"
    if response.is_moved:
        text = f"{shown(url)} has moved to {shown(str(response.url))}, which answered {status}"
    elif str(response.url) != url:
        text = f"{text} by {shown(str(response.url))}"
    if status in _ADVICE:
        text = f"{text}: {_ADVICE[status]}"
    delay = None
    if status in _OVERLOADED:
        delay = delay_seconds(response.headers.get("retry-after"), context.clock.now())
    return SourceError(text, retry_seconds=delay)
