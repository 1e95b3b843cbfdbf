"""Signatures of webhooks (Standard Webhooks) and of the links by which people answer."""

import base64
import hashlib
import hmac
from dataclasses import dataclass
from typing import Final

from agent.channels.secret_ref import SecretError
from agent.core.clock import SECOND

_MARK: Final = "link"


class BadLinkError(Exception):
    """A link was not made by this agent, or has expired."""


@dataclass(frozen=True, slots=True)
class Link:
    """The target of a link."""

    approval_id: str
    expires_at: int


def key_of(secret: str) -> bytes:
    """Return the key in a secret as Standard Webhooks writes it: `whsec_` and base64.

    Raises `SecretError`: a signature with a short key proves nothing.
    """
    try:
        key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except ValueError:
        key = b""
    if len(key) < 16:
        raise SecretError("the secret must be whsec_ and the base64 of 24 to 64 bytes")
    return key


def signed_headers(key: bytes, message_id: str, now_us: int, body: bytes) -> dict[str, str]:
    """Return the headers that sign a message."""
    stamp = str(now_us // SECOND)
    mac = hmac.new(key, f"{message_id}.{stamp}.".encode() + body, hashlib.sha256).digest()
    return {
        "webhook-id": message_id,
        "webhook-timestamp": stamp,
        "webhook-signature": "v1," + base64.b64encode(mac).decode(),
    }


def link_token(key: bytes, approval_id: str, expires_at: int) -> str:
    """Return the last part of a link: approval, expiry, and a signature over both."""
    seconds = expires_at // SECOND
    return f"{approval_id}.{seconds}.{_signature(key, approval_id, seconds)}"


def read_link(key: bytes, token: str, now_us: int) -> Link:
    """Return the target of a link, or raise `BadLinkError`."""
    approval_id, _, rest = token.partition(".")
    stamp, _, signature = rest.partition(".")
    if not (stamp.isascii() and stamp.isdigit() and len(stamp) <= 12):
        raise BadLinkError("this link is not valid")
    expected = _signature(key, approval_id, int(stamp))
    if not hmac.compare_digest(signature.encode("utf-8", errors="replace"), expected.encode()):
        raise BadLinkError("this link is not valid")
    expires_at = int(stamp) * SECOND
    if expires_at <= now_us:
        raise BadLinkError("this link has expired")
    return Link(approval_id, expires_at)


def _signature(key: bytes, approval_id: str, seconds: int) -> str:
    signed = f"{_MARK}.{approval_id}.{seconds}".encode()
    mac = hmac.new(key, signed, hashlib.sha256).digest()
    return base64.urlsafe_b64encode(mac).decode().rstrip("=")
