"""Where a webhook's delivery comes from, and which one it is: one function a scheme.

A secret is named by reference in the workflow and read when it is needed. Comparisons take the same
time whatever differs; where a scheme signs a time, a delivery is good for five minutes.
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
LEAST_SECRET_BYTES: Final = 16
"""Shorter secrets can be guessed by trying."""
_MAX_ID: Final = 300


class SignatureError(Exception):
    """A delivery does not prove where it comes from; the message says what was looked for."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """A delivery that is what it says."""

    id: str | None
    """The sender's name for it: a repetition has the same one. None: it has none."""
    event: str | None
    body: Any
    reply: dict[str, Any] | None = None
    """What to answer to a delivery that only asks whether anybody is there."""


Verify = Callable[[str, Mapping[str, str], bytes, int], Delivery]


def _standard(secret: str, headers: Mapping[str, str], body: bytes, now_us: int) -> Delivery:
    """Verify by the Standard Webhooks scheme; Svix sends the same under names of its own."""
    prefix = "webhook" if "webhook-id" in headers else "svix"
    delivery_id = headers.get(f"{prefix}-id", "")
    stamp = headers.get(f"{prefix}-timestamp", "")
    if not delivery_id:
        raise SignatureError("the header webhook-id is missing")
    _check_time(stamp, now_us)
    signed = hmac.new(
        key_of(secret), f"{delivery_id}.{stamp}.".encode() + body, hashlib.sha256
    ).digest()
    expected = "v1," + base64.b64encode(signed).decode()
    _check_any(headers.get(f"{prefix}-signature", "").split(" "), expected)
    return Delivery(delivery_id, _text_in(_parsed(body), "type"), _parsed(body))


def _github(secret: str, headers: Mapping[str, str], body: bytes, _now_us: int) -> Delivery:
    """Verify as GitHub signs."""
    expected = "sha256=" + _hex(secret, body)
    _check_any([headers.get("x-hub-signature-256", "")], expected)
    delivery_id = headers.get("x-github-delivery", "")
    if not delivery_id:
        raise SignatureError("the header x-github-delivery is missing")
    event = headers.get("x-github-event")
    reply = {"task": None} if event == "ping" else None
    return Delivery(delivery_id, event, _github_payload(headers, body), reply)


def _stripe(secret: str, headers: Mapping[str, str], body: bytes, now_us: int) -> Delivery:
    """Verify as Stripe signs."""
    parts = [part.strip().partition("=") for part in headers.get("stripe-signature", "").split(",")]
    stamp = next((value for name, _, value in parts if name == "t"), "")
    _check_time(stamp, now_us)
    expected = _hex(secret, f"{stamp}.".encode() + body)
    _check_any([value for name, _, value in parts if name == "v1"], expected)
    parsed = _parsed(body)
    delivery_id = _text_in(parsed, "id")
    if delivery_id is None:
        raise SignatureError("the event has no id")
    return Delivery(delivery_id, _text_in(parsed, "type"), parsed)


def _slack(secret: str, headers: Mapping[str, str], body: bytes, now_us: int) -> Delivery:
    """Verify as Slack signs."""
    stamp = headers.get("x-slack-request-timestamp", "")
    _check_time(stamp, now_us)
    expected = "v0=" + _hex(secret, f"v0:{stamp}:".encode() + body)
    _check_any([headers.get("x-slack-signature", "")], expected)
    parsed = _parsed(body)
    kind = _text_in(parsed, "type")
    reply = None
    if kind == "url_verification" and isinstance(parsed, dict):
        reply = {"challenge": parsed.get("challenge")}
    # Commands and buttons have no id; their signed time and content stand in for one.
    delivery_id = _text_in(parsed, "event_id") or content_hash(stamp.encode() + b":" + body)
    return Delivery(delivery_id, kind, parsed, reply)


def _token(secret: str, headers: Mapping[str, str], body: bytes, _now_us: int) -> Delivery:
    """Verify a secret that the sender simply gives."""
    word, _, given = headers.get("authorization", "").partition(" ")
    if word.lower() != "bearer":
        given = headers.get("x-webhook-token", "")
    _check_any([given.strip()], secret)
    delivery_id = headers.get("webhook-id") or headers.get("idempotency-key")
    return Delivery(delivery_id or None, None, _parsed(body))


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
    """Return the delivery that a request is; raise `SignatureError` if it proves nothing.

    Raises `SecretError` where the secret on this side is of no use.
    """
    check_secret(preset, secret)
    delivery = PRESETS[preset](secret, headers, body, now_us)
    if delivery.id is not None and len(delivery.id) > _MAX_ID:
        raise SignatureError(f"the delivery's id is longer than {_MAX_ID} characters")
    return delivery


def check_secret(preset: str, secret: str) -> None:
    """Raise `SecretError` for a secret that others could guess."""
    if preset == "standard":
        key_of(secret)
    elif len(secret.encode()) < LEAST_SECRET_BYTES:
        raise SecretError(f"the secret must have at least {LEAST_SECRET_BYTES} bytes")


def spend_time(body: bytes) -> None:
    """Do what a verification does, where there is nothing to verify."""
    hmac.compare_digest(_hex("no secret", body), _hex("another", b""))


def _hex(secret: str, signed: bytes) -> str:
    return hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()


def _check_any(given: list[str], expected: str) -> None:
    fits = False
    for each in given:
        fits = hmac.compare_digest(each.encode(), expected.encode()) or fits
    if not fits:
        raise SignatureError("the signature is missing or does not fit")


def _check_time(stamp: str, now_us: int) -> None:
    if not (stamp.isascii() and stamp.isdigit() and len(stamp) <= 12):
        raise SignatureError("the delivery's timestamp is missing")
    if abs(now_us // SECOND - int(stamp)) > TOLERANCE_SECONDS:
        raise SignatureError("the delivery's timestamp is more than five minutes off")


def _parsed(body: bytes) -> Any:
    """Return what a body says: JSON where it is, else its text."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return body.decode("utf-8", errors="replace")


def _github_payload(headers: Mapping[str, str], body: bytes) -> Any:
    """Return the payload, which GitHub sends as JSON or as the field `payload` of a form."""
    media = headers.get("content-type", "").partition(";")[0].strip().lower()
    if media != "application/x-www-form-urlencoded":
        return _parsed(body)
    try:
        fields = parse_qs(body.decode(), keep_blank_values=True, max_num_fields=10)
    except ValueError:
        return _parsed(body)
    payload = fields.get("payload", [])
    return _parsed(payload[0].encode()) if len(payload) == 1 else _parsed(body)


def _text_in(parsed: Any, name: str) -> str | None:
    found = parsed.get(name) if isinstance(parsed, dict) else None
    return found if isinstance(found, str) and found else None
