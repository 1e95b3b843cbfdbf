"""Verification of webhook deliveries, one function per signature scheme.

The workflow names the secret by reference; it is read when needed. Comparisons take constant time.
Where a scheme signs a timestamp, a delivery is valid for five minutes.
"""

import base64
import hashlib
import hmac
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qs

from agent.channels.link_signing import key_of
from agent.channels.secret_ref import SecretError
from agent.core.clock import SECOND
from agent.core.ids import content_hash

TOLERANCE_SECONDS: Final = 300
MIN_SECRET_BYTES: Final = 16
"""Shorter secrets can be guessed by brute force."""
_MAX_ID_CHARACTERS: Final = 300
_FORM: Final = "application/x-www-form-urlencoded"
_MOST_FIELDS: Final = 1_000


class SignatureError(Exception):
    """A delivery's signature is missing or wrong; the message names the expected form."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """A verified delivery."""

    id: str | None
    """The sender's id, the same for every redelivery; None if the scheme has none."""
    event: str | None
    body: Any
    reply: dict[str, Any] | None = None
    """The response to a delivery that only tests the address; nothing is started."""


Verify = Callable[[str, Mapping[str, str], bytes, int], Delivery]


def _standard(secret: str, headers: Mapping[str, str], body: bytes, now_us: int) -> Delivery:
    """Verify by the Standard Webhooks scheme; Svix uses the same with other header names."""
    prefix = "webhook" if "webhook-id" in headers else "svix"
    delivery_id = headers.get(f"{prefix}-id", "")
    stamp = headers.get(f"{prefix}-timestamp", "")
    if not delivery_id:
        raise SignatureError("the header webhook-id is missing")
    _check_time(stamp, now_us)
    digest = hmac.new(
        key_of(secret), f"{delivery_id}.{stamp}.".encode() + body, hashlib.sha256
    ).digest()
    expected = "v1," + base64.b64encode(digest).decode()
    _check_any(headers.get(f"{prefix}-signature", "").split(" "), expected)
    parsed = _parsed(headers, body)
    return Delivery(delivery_id, _text_in(parsed, "type"), parsed)


def _github(secret: str, headers: Mapping[str, str], body: bytes, _now_us: int) -> Delivery:
    """Verify a delivery of GitHub."""
    expected = "sha256=" + _hex(secret, body)
    _check_any([headers.get("x-hub-signature-256", "")], expected)
    delivery_id = headers.get("x-github-delivery", "")
    if not delivery_id:
        raise SignatureError("the header x-github-delivery is missing")
    event = headers.get("x-github-event")
    reply = {"task": None} if event == "ping" else None
    return Delivery(delivery_id, event, _parsed(headers, body), reply)


def _stripe(secret: str, headers: Mapping[str, str], body: bytes, now_us: int) -> Delivery:
    """Verify a delivery of Stripe."""
    parts = [part.strip().partition("=") for part in headers.get("stripe-signature", "").split(",")]
    stamp = next((value for name, _, value in parts if name == "t"), "")
    _check_time(stamp, now_us)
    expected = _hex(secret, f"{stamp}.".encode() + body)
    _check_any([value for name, _, value in parts if name == "v1"], expected)
    parsed = _parsed(headers, body)
    delivery_id = _text_in(parsed, "id")
    if delivery_id is None:
        raise SignatureError("the event has no id")
    return Delivery(delivery_id, _text_in(parsed, "type"), parsed)


def _slack(secret: str, headers: Mapping[str, str], body: bytes, now_us: int) -> Delivery:
    """Verify a delivery of Slack."""
    stamp = headers.get("x-slack-request-timestamp", "")
    _check_time(stamp, now_us)
    expected = "v0=" + _hex(secret, f"v0:{stamp}:".encode() + body)
    _check_any([headers.get("x-slack-signature", "")], expected)
    parsed = _parsed(headers, body)
    kind = _text_in(parsed, "type")
    reply = None
    if kind == "url_verification" and isinstance(parsed, dict):
        reply = {"challenge": parsed.get("challenge")}
    # Commands and buttons have no id: their signed timestamp and content identify them.
    delivery_id = _text_in(parsed, "event_id") or content_hash(stamp.encode() + b":" + body)
    return Delivery(delivery_id, kind, parsed, reply)


def _token(secret: str, headers: Mapping[str, str], body: bytes, _now_us: int) -> Delivery:
    """Verify a secret that the sender sends as it is."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer":
        token = headers.get("x-webhook-token", "")
    _check_any([token.strip()], secret)
    delivery_id = headers.get("webhook-id") or headers.get("idempotency-key")
    return Delivery(delivery_id or None, None, _parsed(headers, body))


PRESETS: Final[dict[str, Verify]] = {
    "standard": _standard,
    "github": _github,
    "stripe": _stripe,
    "slack": _slack,
    "token": _token,
}


def verify(
    preset: str, secret: str, headers: Mapping[str, str], body: bytes, now_us: int
) -> Delivery:
    """Return a request's delivery; raise `SignatureError` if its signature is not valid.

    Raises `SecretError` if the configured secret cannot be used.
    """
    check_secret(preset, secret)
    delivery = PRESETS[preset](secret, headers, body, now_us)
    if delivery.id is not None and len(delivery.id) > _MAX_ID_CHARACTERS:
        raise SignatureError(f"the delivery's id is longer than {_MAX_ID_CHARACTERS} characters")
    return delivery


def check_secret(preset: str, secret: str) -> None:
    """Raise `SecretError` for a secret that is malformed or too short."""
    if preset == "standard":
        key_of(secret)
    elif len(secret.encode()) < MIN_SECRET_BYTES:
        raise SecretError(f"the secret must have at least {MIN_SECRET_BYTES} bytes")


def spend_time(body: bytes) -> None:
    """Take as long as a verification, so that timing does not reveal which workflows exist."""
    hmac.compare_digest(_hex("no secret", body), _hex("another", b""))


def _hex(secret: str, content: bytes) -> str:
    return hmac.new(secret.encode(), content, hashlib.sha256).hexdigest()


def _check_any(signatures: list[str], expected: str) -> None:
    is_valid = False
    for signature in signatures:
        is_valid = hmac.compare_digest(signature.encode(), expected.encode()) or is_valid
    if not is_valid:
        raise SignatureError("the signature is missing or not valid")


def _check_time(stamp: str, now_us: int) -> None:
    if not (stamp.isascii() and stamp.isdigit() and len(stamp) <= 12):
        raise SignatureError("the delivery's timestamp is missing")
    if abs(now_us // SECOND - int(stamp)) > TOLERANCE_SECONDS:
        raise SignatureError("the delivery's timestamp is more than five minutes off")


def _parsed(headers: Mapping[str, str], body: bytes) -> Any:
    """Return a body as JSON, else as the fields of a form, else as text.

    JSON first: some programs name a form whatever they send. A form whose only field is `payload`, as GitHub and
    Slack send, is what that field contains.
    """
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        text = body.decode("utf-8", errors="replace")
    if headers.get("content-type", "").partition(";")[0].strip().lower() != _FORM:
        return text
    try:
        fields = parse_qs(
            text, keep_blank_values=True, strict_parsing=True, max_num_fields=_MOST_FIELDS
        )
    except ValueError:
        return text
    if fields.keys() == {"payload"} and len(fields["payload"]) == 1:
        return _parsed({}, fields["payload"][0].encode())
    return {name: values[0] if len(values) == 1 else values for name, values in fields.items()}


def _text_in(parsed: Any, name: str) -> str | None:
    value = parsed.get(name) if isinstance(parsed, dict) else None
    return value if isinstance(value, str) and value else None
